// SPDX-License-Identifier: Apache-2.0
// Plan: the vocabulary of models. An architecture file reads a checkpoint's metadata and returns a
// Plan; one decoder runs every plan. A plan holds specs from algorithm/ and references to weights
// (tensor name and view), no bytes and no code, so it can be printed, costed and cut before
// anything is loaded. Where a new model does not fit, this vocabulary gains a word; nothing else in
// lemma asks which architecture it runs.
//
//   Plan     = embedding, residual style, layers[], final norm, head, draft blocks[]
//   Layer    = sites[] (one after the other, or side by side), a scale of the stream at the end
//   Site     = norm of the stream, mixer, norm of the branch, scale; or a norm after the sum
//   Mixer    = attention of a family, or feed-forward of a family, or a sum of feed-forwards
//   Residual = plain | hyper-connections (streams) | attention residual (blocks)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "algorithm/attention/compressed_sparse.hpp"
#include "algorithm/attention/dsa.hpp"
#include "algorithm/attention/gated_delta_net.hpp"
#include "algorithm/attention/gqa.hpp"
#include "algorithm/attention/kda.hpp"
#include "algorithm/attention/mla.hpp"
#include "algorithm/attention/msa.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/ffn/routing.hpp"
#include "algorithm/norm.hpp"
#include "algorithm/residual/attn_res.hpp"
#include "algorithm/residual/hyper_connection.hpp"
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

// Token mixers: they look along the tokens of a sequence.

/// Chooses blocks of keys for each KV head (MSA).
struct BlockIndexer {
  algorithm::MsaSpec spec;
  Linear query, key;  ///< [Hx * dx, D], [dx, D]
  Norm query_norm, key_norm;
  std::optional<algorithm::RopeSpec> rope;
};

/// Attention over key-value heads: projections, what happens to heads, and the spec of attending.
struct Gqa {
  algorithm::GqaSpec spec;
  Linear query, key, value, output;  ///< value is absent where values are the raw keys
  std::optional<QkNorm> qk_norm;
  std::optional<Norm> value_norm;           ///< per head
  std::optional<algorithm::RopeSpec> rope;  ///< none: no rotation in this layer
  WeightRef sinks;                          ///< [H] where spec.sinks
  Linear gate;                              ///< [H * d_v, D]: output times sigmoid(gate x), or none
  float clamp = 0.f;                        ///< clips projected q, k, v to [-c, c]; 0: none
  /// Reads the keys and values of this layer, which owns them, instead of its own; key and value
  /// projections are absent then.
  std::optional<std::uint32_t> source;
  std::optional<BlockIndexer> indexer;
};

/// Chooses tokens for latent attention (DSA).
struct TokenIndexer {
  algorithm::IndexerSpec spec;
  Linear query;    ///< [Hi * Di, q_rank], of the query latent
  Linear key;      ///< [Di, D]
  Linear weights;  ///< [Hi, D]
  Norm key_norm;   ///< layer norm
  std::optional<algorithm::RopeSpec> rope;
  std::uint32_t kpool = 0;  ///< tokens per pool; 0: none
  bool always_select_tail = false;
  Linear pool_gate;          ///< [Di, D]
  WeightRef pool_positions;  ///< [kpool, Di]
};

/// Latent attention, plain or over selected tokens.
struct Mla {
  algorithm::MlaSpec spec;
  Linear query_down;  ///< [q_rank, D]; absent for a direct query projection
  Norm query_norm;
  Linear query;     ///< [H * (dn + dr), q_rank or D], per head [dn | dr]
  Linear latent;    ///< [c, D]
  Linear rope_key;  ///< [dr, D]; absent for dr = 0
  Norm latent_norm;
  std::optional<algorithm::RopeSpec> rope;  ///< of the dr dims
  WeightRef key_up;                         ///< [H * dn, c], or [H * c, dn] where transposed
  WeightRef value_up;                       ///< [H * dv, c]
  bool key_up_transposed = false;
  Linear gate;  ///< [H * dv, D], or [H, D] where gate_per_head; where spec.output_gate
  bool gate_per_head = false;
  Linear output;
  std::optional<TokenIndexer> indexer;
  /// Attends to the tokens that this layer's indexer chose.
  std::optional<std::uint32_t> selection_source;
};

/// Compressed sparse attention (DeepSeek V4).
struct CompressedSparse {
  algorithm::CompressedSparseSpec spec;
  Linear query_down;  ///< [q_rank, D]
  Norm query_norm;
  Linear query;  ///< [H * d, q_rank]
  Linear row;    ///< [d, D]
  Norm row_norm;
  WeightRef sinks;  ///< [H]
  struct Compressor {
    Linear value, gate;   ///< [channels, D]
    WeightRef positions;  ///< [ratio, channels]
    WeightRef norm;       ///< [width]
  };
  std::optional<Compressor> compressor, index_compressor;
  Linear index_query;     ///< [Hi * Di, q_rank]
  Linear index_weights;   ///< [Hi, D]
  WeightRef output_down;  ///< [groups * rank, H * d / groups]
  Linear output;          ///< [D, groups * rank]
};

/// Gated DeltaNet; the projections in front of the convolution are [q | k | v], whole or apart.
struct GatedDeltaNet {
  algorithm::GatedDeltaNetSpec spec;
  std::vector<Linear> channels;
  std::vector<WeightRef> convolutions;
  Linear alpha, beta, gate, output;
  WeightRef rate, dt_bias, norm;
};

/// Kimi delta attention. A projection through a bottleneck names its first half `..._down`.
struct Kda {
  algorithm::KdaSpec spec;
  std::vector<Linear> channels;
  std::vector<WeightRef> convolutions;
  Linear forget_down, forget, beta, gate_down, gate, output;
  WeightRef rate, dt_bias, norm;
};

// Channel mixers: they work on each token's channels.

struct DenseMlp {
  algorithm::MlpSpec spec;
  Linear gate, up, down;  ///< gate is absent in an ungated block
};

/// Routed experts, and what every row has beside them. With `latent` the experts work in a narrower
/// space, which `latent_down` leads into and `latent_up` out of.
struct Moe {
  algorithm::RoutingSpec routing;
  algorithm::MlpSpec expert;
  bool weigh_inputs = false;
  Linear router;                       ///< [E, D]
  WeightRef correction, expert_scale;  ///< [E]
  WeightRef hash_table;                ///< [V, k]
  /// The router reads the stream under this norm instead of the site's normed stream.
  std::optional<Norm> router_norm;
  float router_scale = 1.f;  ///< of what the router reads
  Linear gate, up, down;     ///< stacks [E * F, D], [E * F, D], [E * D, F]; biases [E, F], [E, D]
  Linear latent_down, latent_up;
  std::optional<Norm> latent_norm;
  std::optional<DenseMlp> shared;
  WeightRef shared_gate;  ///< [1, D]: the shared block times sigmoid(x . w)
};

/// Feed-forward blocks that read the same stream and whose outputs are added.
struct FfnSum {
  struct Part {
    std::optional<Norm> norm;  ///< of the stream
    std::variant<DenseMlp, Moe> mixer;
    std::optional<Norm> branch_norm;
  };
  std::vector<Part> parts;
};

/// Adds a per-layer row of the token to the stream: W_out (act(W_gate h) * row).
struct PerLayerInput {
  algorithm::ActivationSpec activation;
  std::uint32_t width = 0;  ///< P of the row
  std::uint32_t index = 0;  ///< of the layer, in Embedding::PerLayer
  Linear gate, output;      ///< [P, D], [D, P]
};

/// A site's mixer: one that looks along the tokens, or one that works on each token's channels.
using Mixer = std::variant<Gqa, Mla, CompressedSparse, GatedDeltaNet, Kda, DenseMlp, Moe, FfnSum,
                           PerLayerInput>;

/// The selection that an Mla's indexer makes, as its spec. The indexer must be there.
algorithm::DsaSpec dsa_spec(const Mla& mla);

/// Whether a mixer looks along tokens; the others work on channels.
bool looks_along_tokens(const Mixer& mixer) noexcept;

/// A site's parameters of hyper-connections: fn [(2 + n) n, n * D], base [(2 + n) n], scale [3].
struct StreamWeights {
  WeightRef fn, base, scale;
};
/// A site's parameters of the attention residual, [D] each.
struct BlockMixWeights {
  WeightRef norm, projection;
};

struct Site {
  std::optional<Norm> norm;  ///< of the stream, before the mixer
  bool shares_norm = false;  ///< reads the normed stream of the site before it instead
  Mixer mixer;
  std::optional<Norm> branch_norm;  ///< of the mixer's output, before the sum
  float scale = 1.f;                ///< of the mixer's output
  std::optional<Norm> sum_norm;     ///< post-norm (BERT): of the stream after the sum
  StreamWeights streams;            ///< where the plan's residual is hyper-connections
  BlockMixWeights block_mix;        ///< where it is the attention residual
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
  WeightRef token_type;  ///< [types, D], of which every token has type 0
  float scale = 1.f;
  std::optional<Norm> norm;
  /// A row per layer and token (Gemma 4): ((table row) * table_scale +
  /// norm(projection(embedding) * projection_scale)) * sum_scale.
  struct PerLayer {
    std::uint32_t width = 0;  ///< P
    WeightRef table;          ///< [V, L * P]
    Linear projection;        ///< [L * P, D], of the scaled embedding
    Norm norm;                ///< [P]
    float table_scale = 1.f, projection_scale = 1.f, sum_scale = 1.f;
  };
  std::optional<PerLayer> per_layer;
};

struct HyperConnections {
  algorithm::HyperConnectionSpec spec;
  StreamWeights leave;  ///< fn [n, n * D], base [n], scale [1]; absent: the mean of the streams
};
struct AttentionResidual {
  algorithm::AttnResSpec spec;
  BlockMixWeights leave;
};
using Residual = std::variant<std::monostate, HyperConnections, AttentionResidual>;

struct Head {
  Linear output;  ///< [V, D]; absent: the plan ends in hidden states
  float scale = 1.f;
  float softcap = 0.f;
};

/// A block that drafts (multi-token prediction): it reads a token and the row that the model left
/// for the token before it, and gives the logits of the token after. Its stream is
/// token(token_norm(embedding)) + row(row_norm(row)), its layer is one of its own with a state of
/// its own. The second block reads what the first handed on, and so forth. The positions of a
/// block's layer and its Source are the model's: the first block counts as layer L.
struct DraftBlock {
  /// What the model, or the block before, hands on.
  enum class Reads : std::uint8_t {
    kHidden,  ///< the normed row that enters the head, [D]
    kStream,  ///< what the last layer left: all streams of hyper-connections, each taken for itself
  } reads = Reads::kHidden;
  WeightRef table;  ///< [V, D]: the model's or its own
  Norm token_norm, row_norm;
  Linear token, row;  ///< [D, D] each
  Layer layer;
  StreamWeights leave;  ///< as HyperConnections::leave
  Norm final_norm;
  Linear output;  ///< [V, D]: the model's or its own; scale and soft-cap are those of Head
};

struct Plan {
  std::string architecture;      ///< as the checkpoint names it
  std::string name;              ///< the model's own name, if it has one
  std::uint32_t width = 0;       ///< D
  std::uint32_t vocabulary = 0;  ///< V
  std::uint32_t context = 0;     ///< positions that the model was made for
  Embedding embedding;
  Residual residual;
  std::vector<Layer> layers;
  std::optional<Norm> final_norm;
  Head head;
  std::vector<DraftBlock> drafts;

  /// The layer at `index`, where draft blocks follow the model's own layers.
  const Layer& layer_at(std::size_t index) const {
    return index < layers.size() ? layers[index] : drafts.at(index - layers.size()).layer;
  }
  /// Throws kUnsupported or kBadFile; the message names layer, site and field.
  void validate() const;
};

/// The word for a mixer: "gqa", "dense_mlp".
const char* mixer_name(const Mixer& mixer) noexcept;

}  // namespace lemma::model
