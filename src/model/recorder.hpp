// SPDX-License-Identifier: Apache-2.0
// Recorder: the decoder's hand. It turns the words of a plan into operations of a program and
// binds their weights into a backend. decoder.cpp walks the layers, draft_blocks.cpp what is around
// the layer of a draft block, token_mixers.cpp and channel_mixers.cpp record one mixer each. Used
// by the decoder only.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "model/plan.hpp"
#include "model/weight_binder.hpp"

namespace lemma::model {

class Recorder {
 public:
  Recorder(const Plan& plan, WeightBinder& weights)
      : plan_(plan), weights_(weights), layers_(plan.layers.size() + plan.drafts.size()) {}

  backend::Program record();
  backend::Program record_draft(std::size_t block);

 private:
  using Tensor = backend::Tensor;
  using WeightId = backend::WeightId;

  /// What a mixer reads: the site's normed stream, and the stream before its norm.
  struct Input {
    Tensor normed, stream;
  };
  /// What later layers may ask of an earlier one.
  struct LayerValues {
    backend::SlotId key = -1, value = -1;
    Tensor selection;
  };
  /// A site's view of the residual while it is being recorded.
  struct Residual {
    Tensor stream;               ///< plain [T, D], or all streams [T, n * D]
    Tensor coefficients;         ///< hyper-connections: of the site that is being recorded
    std::vector<Tensor> blocks;  ///< attention residual
  };

  // draft_blocks.cpp
  Tensor join(const DraftBlock& draft);

  // decoder.cpp
  Tensor embed();
  void per_layer_rows(Tensor embedding);
  void layer(const Layer& layer, Residual& residual);
  Tensor enter(Tensor embedding);
  Tensor read(const Site& site, Residual& residual);
  void write(const Site& site, Residual& residual, Tensor branch, float scale);
  void open_block(const Site& site, Residual& residual);
  Tensor leave(const Residual& residual, const StreamWeights* weights);
  void head(Tensor in, const Linear& output);
  Tensor branch(const Site& site, Input input);

  // token_mixers.cpp
  Tensor mix(const Gqa& gqa, Input input);
  Tensor mix(const Mla& mla, Input input);
  Tensor mix(const CompressedSparse& sparse, Input input);
  Tensor mix(const GatedDeltaNet& net, Input input);
  Tensor mix(const Kda& kda, Input input);
  std::pair<Tensor, LayerValues> keys_and_queries(const Gqa& gqa, Tensor x);
  Tensor select_blocks(const Gqa& gqa, Tensor x);
  Tensor select_tokens(const Mla& mla, Tensor x, Tensor query_latent);
  backend::SlotId compress(const CompressedSparse& sparse,
                           const CompressedSparse::Compressor& compressor,
                           const algorithm::CompressorSpec& spec, const char* name, Tensor x);

  // channel_mixers.cpp
  Tensor mix(const DenseMlp& mlp, Input input);
  Tensor mix(const Moe& moe, Input input);
  Tensor mix(const FfnSum& sum, Input input);
  Tensor mix(const PerLayerInput& per_layer, Input input);
  std::pair<Tensor, Tensor> route(const Moe& moe, Input input);
  Tensor shared_experts(const Moe& moe, Tensor x);

  // Operations with the usual shapes; each returns the tensor that it writes.
  Tensor norm(const Norm& norm, Tensor in, const char* site);
  Tensor head_norm(const Norm& norm, std::uint32_t head_dim, bool own_weights, Tensor in,
                   const char* site);
  Tensor rotate(const algorithm::RopeSpec& rope, std::uint32_t head_dim, Tensor in,
                const char* site, bool inverse = false);
  backend::Project::Output output(const Linear& linear, std::uint32_t rows, std::uint32_t cols,
                                  const char* site);
  Tensor project(const Linear& linear, Tensor in, std::uint32_t width, const char* site);
  Tensor gate(Tensor in, Tensor gate, const char* site);
  Tensor add(Tensor a, Tensor b, const char* site, float b_scale = 1.f, float out_scale = 1.f);
  /// Stores `in` into a new slot.
  backend::SlotId store(const algorithm::Slot& slot, Tensor in);
  backend::SlotId new_slot(const algorithm::Slot& slot);

  WeightId bind(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols,
                backend::WeightUse use);
  WeightId bind_vector(const WeightRef& ref, std::uint64_t width);
  Tensor tensor(const std::string& site, std::uint32_t width);
  void emit(backend::Operation operation);

  const Plan& plan_;
  WeightBinder& weights_;
  backend::Program program_;
  std::vector<LayerValues> layers_;
  Tensor per_layer_;       ///< [L * P]: every layer's row of the token
  std::size_t layer_ = 0;  ///< that is being recorded
  std::string prefix_;     ///< of the sites that are being recorded
};

}  // namespace lemma::model
