// SPDX-License-Identifier: Apache-2.0
// Plan: the vocabulary of models. An architecture file reads a checkpoint's metadata and returns a
// Plan; one decoder runs every plan. A plan holds specs from algorithm/ and references to weights
// (tensor name and view), no bytes and no code, so it can be printed, costed and cut before
// anything is loaded. Where a new model does not fit, this vocabulary gains a word; nothing else in
// lemma asks which architecture it runs.
//
//   Plan  = embedding, layers[], final norm, head
//   Layer = sites[] (one after the other, or side by side), a scale of the stream at the end
//   Site  = norm of the stream, mixer, norm of the branch, scale; or a norm after the sum
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/norm.hpp"
#include "algorithm/rope.hpp"
#include "weights/view.hpp"

namespace lemma::model {

using weights::View;
using weights::WeightRef;

/// A weight matrix with an optional bias vector.
struct Linear {
  WeightRef weight, bias;
  explicit operator bool() const noexcept { return static_cast<bool>(weight); }
};

struct Norm {
  algorithm::NormSpec spec;
  WeightRef weight, bias;  ///< either may be absent
};

/// How the heads of queries and keys are normed before they turn.
struct QkNorm {
  Norm query, key;
  /// kPerHead: each head on its own, one weight [d]. kPerHeadOwn: each head its own weight [H, d].
  /// kWholeRow: all heads together, weight [H * d].
  enum class Extent : std::uint8_t { kPerHead, kPerHeadOwn, kWholeRow } extent = Extent::kPerHead;
};

/// Attention over key-value heads: projections, what happens to heads, and the spec of attending.
struct Gqa {
  algorithm::GqaSpec spec;
  Linear query, key, value, output;
  std::optional<QkNorm> qk_norm;
  std::optional<algorithm::RopeSpec> rope;  ///< none: no rotation in this layer
  WeightRef sinks;                          ///< [H] where spec.sinks
  float clamp = 0.f;                        ///< clips projected q, k, v to [-c, c]; 0: none
};

struct DenseMlp {
  algorithm::MlpSpec spec;
  Linear gate, up, down;  ///< gate is absent in an ungated block
};

/// A site's mixer: one that looks along the tokens, or one that works on each token's channels.
using Mixer = std::variant<Gqa, DenseMlp>;

struct Site {
  std::optional<Norm> norm;  ///< of the stream, before the mixer
  bool shares_norm = false;  ///< reads the normed stream of the site before it instead
  Mixer mixer;
  std::optional<Norm> branch_norm;  ///< of the mixer's output, before the sum
  float scale = 1.f;                ///< of the mixer's output
  std::optional<Norm> sum_norm;     ///< post-norm (BERT): of the stream after the sum
};

struct Layer {
  std::vector<Site> sites;
  bool side_by_side = false;  ///< all sites read the stream before any writes to it
  float scale = 1.f;          ///< of the whole stream, at the end
};

struct Embedding {
  WeightRef table;      ///< [V, D]
  WeightRef positions;  ///< [context, D], learned; absent in most
  std::uint32_t position_rows = 0;
  float scale = 1.f;
  std::optional<Norm> norm;
};

struct Head {
  Linear output;  ///< [V, D]; absent: the plan ends in hidden states
  float scale = 1.f;
  float softcap = 0.f;
};

struct Plan {
  std::string architecture;      ///< as the checkpoint names it
  std::string name;              ///< the model's own name, if it has one
  std::uint32_t width = 0;       ///< D
  std::uint32_t vocabulary = 0;  ///< V
  std::uint32_t context = 0;     ///< positions that the model was made for
  Embedding embedding;
  std::vector<Layer> layers;
  std::optional<Norm> final_norm;
  Head head;

  /// Throws kUnsupported or kBadFile; the message names layer, site and field.
  void validate() const;
};

/// The word for a mixer: "gqa", "dense_mlp".
const char* mixer_name(const Mixer& mixer) noexcept;

}  // namespace lemma::model
