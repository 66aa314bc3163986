// SPDX-License-Identifier: Apache-2.0
// The families of names/, one list per file, and what several of them share.
#pragma once

#include <initializer_list>
#include <span>

#include "weights/safetensors/translation.hpp"

namespace lemma::weights::safetensors {

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
/// sliding_window and which layers have it, by layer_types.
void window_by_layer(Translation& t);

}  // namespace lemma::weights::safetensors
