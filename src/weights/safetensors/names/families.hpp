// SPDX-License-Identifier: Apache-2.0
// The families of names/, one list per file, and what several of them share.
#pragma once

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

/// Rotation of whole heads, or of the share that config.json states; gated SiLU.
void usual_keys(Translation& t);
/// The same without the check of the activation.
void usual_rope(Translation& t);
/// sliding_window for every layer, where it is used at all.
void window_of_all_layers(Translation& t);
/// sliding_window and which layers have it, by layer_types.
void window_by_layer(Translation& t);

}  // namespace lemma::weights::safetensors
