// SPDX-License-Identifier: Apache-2.0
// The families of names/, one list per file, and what several of them share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "weights/safetensors/translation.hpp"

namespace lemma::weights::safetensors {

/// The keys of routed experts in every spelling; of two for the same thing the first counts.
inline constexpr auto kExpertKeys = std::to_array<KeyRule>({
    {"n_routed_experts", "expert_count"},
    {"num_experts", "expert_count"},
    {"num_local_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"num_experts_per_token", "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"n_shared_experts", "expert_shared_count"},
    {"num_shared_experts", "expert_shared_count"},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
    {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
    {"routed_scaling_factor", "expert_weights_scale", kReal},
    {"norm_topk_prob", "expert_weights_norm", kFlag},
    {"moe_renormalize", "expert_weights_norm", kFlag},
});

/// A family's own keys with those of routed experts.
template <std::size_t kCount>
constexpr std::array<KeyRule, kCount + kExpertKeys.size()> with_experts(
    const KeyRule (&own)[kCount]) {
  std::array<KeyRule, kCount + kExpertKeys.size()> keys{};
  std::copy(own, own + kCount, keys.begin());
  std::copy(kExpertKeys.begin(), kExpertKeys.end(), keys.begin() + kCount);
  return keys;
}

/// How a router's logits become scores, as the key expert_gating_func says it.
inline constexpr std::uint32_t kSoftmaxScores = 1, kSigmoidScores = 2, kSqrtSoftplusScores = 4;

std::span<const Family> llama_families() noexcept;
std::span<const Family> qwen_families() noexcept;
std::span<const Family> gemma_families() noexcept;
std::span<const Family> parallel_families() noexcept;
std::span<const Family> learned_position_families() noexcept;
std::span<const Family> gpt_oss_families() noexcept;
std::span<const Family> deepseek_families() noexcept;
std::span<const Family> kimi_families() noexcept;
std::span<const Family> glm4_families() noexcept;
std::span<const Family> olmo_families() noexcept;
std::span<const Family> fused_families() noexcept;
std::span<const Family> deepseek_v4_families() noexcept;
std::span<const Family> gemma4_families() noexcept;
std::span<const Family> glm5_next_families() noexcept;
std::span<const Family> minimax_families() noexcept;
std::span<const Family> bailing_families() noexcept;

/// Rotation of whole heads, or of the share that config.json states; gated SiLU.
void usual_keys(Translation& t);
/// The same without the check of the activation.
void usual_rope(Translation& t);
/// A fused projection whose rows stand by group of heads, [q ... q | k | v] each, as rows
/// [q | k | v] of all heads; a bias alike.
Source ungrouped(Source fused, std::uint32_t heads, std::uint32_t groups, std::uint32_t head_dim);
/// The kind of GELU that `key` names: the exact one becomes the key feed_forward_activation, since
/// files in GGUF, which do not say, are run with the tanh form.
void gelu_kind(Translation& t, std::string_view key);
/// Marks keys that describe only as read.
void describe(const Translation& t, std::initializer_list<std::string_view> keys);
/// sliding_window for every layer, where it is used at all.
void window_of_all_layers(Translation& t);
/// leading_dense_block_count from mlp_layer_types or first_k_dense_replace.
void dense_layers_in_front(Translation& t);
/// Heads by layer where some are linear attention, which has no KV heads.
void heads_by_layer(Translation& t, const std::vector<bool>& linear, std::uint32_t linear_heads);
/// n_group and topk_group, or the names given.
void expert_groups(Translation& t, std::string_view count, std::string_view kept);
/// Experts called gate_proj, up_proj and down_proj, or otherwise, under layers.#.PATH.
void usual_experts(Translation& t, std::string_view path, std::uint32_t experts,
                   std::string_view gate = "gate_proj", std::string_view up = "up_proj",
                   std::string_view down = "down_proj");
/// Experts that lie in stacks already, gate and up in one: layers.#.mlp.experts.gate_up_proj.
void stacked_experts(Translation& t);
/// A matrix [gate | up] of each layer, under `path`, as two.
void split_gate_up(Translation& t, std::string_view path, std::string_view gate,
                   std::string_view up);
/// sliding_window and which layers have it, by layer_types.
void window_by_layer(Translation& t);

}  // namespace lemma::weights::safetensors
