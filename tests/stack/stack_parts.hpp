// SPDX-License-Identifier: Apache-2.0
// The words of the stack's plan, one function each, with their seeded weights.
#pragma once

#include <cstdint>
#include <string>

#include "model/plan.hpp"
#include "stack_model.hpp"

namespace lemma::test {

inline constexpr std::uint32_t kStackWidth = 64, kStackLayers = 10;

class StackParts {
 public:
  explicit StackParts(SeededWeights& weights) : weights_(weights) {}

  /// Weights made from now on are named so: "layers.3.ffn.".
  void enter(const std::string& prefix) { prefix_ = prefix; }
  model::Residual residual(Wiring wiring);
  model::Site site(model::Mixer mixer, Wiring wiring);
  model::Mixer token_mixer(std::uint32_t layer);
  model::Mixer channel_mixer(std::uint32_t kind);
  model::Norm norm(const std::string& name, std::uint32_t width);

 private:
  // stack_attention.cpp
  model::Gqa sliding();
  model::Gqa gated();
  model::Gqa blocks();
  model::Mla selecting();
  model::Mla sharing(std::uint32_t source);
  model::Mla pooling();
  model::CompressedSparse compressed(std::uint32_t ratio, bool chosen);
  model::GatedDeltaNet delta_net();
  model::Kda kda();
  model::Gqa heads();
  model::Mla latent(std::uint32_t rope_dim);
  model::TokenIndexer indexer(const model::Mla& mla);
  model::CompressedSparse::Compressor compressor(const std::string& name, std::uint32_t ratio,
                                                 std::uint32_t width, std::uint32_t channels);
  // stack_parts.cpp
  model::DenseMlp dense(const algorithm::ActivationSpec& activation, std::uint32_t hidden,
                        bool biases, const std::string& name = "");
  model::Moe experts(const algorithm::RoutingSpec& routing,
                     const algorithm::ActivationSpec& activation, std::uint32_t width, bool gated);
  model::Moe latent_experts(const algorithm::RoutingSpec& routing);
  model::StreamWeights streams(const std::string& name, std::uint32_t rows, std::uint32_t scales);
  model::BlockMixWeights block_mix(const std::string& name);

  model::Linear linear(const std::string& name, std::uint64_t rows, std::uint64_t cols,
                       bool bias = false);
  std::string named(const std::string& name) const { return prefix_ + name; }

  SeededWeights& weights_;
  std::string prefix_;
};

}  // namespace lemma::test
