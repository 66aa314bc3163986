// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/names/families.hpp"

#include <algorithm>

#include "base/raise.hpp"

namespace lemma::weights::safetensors {
namespace {

constexpr auto kLists = {llama_families,
                         qwen_families,
                         gemma_families,
                         parallel_families,
                         learned_position_families,
                         gpt_oss_families,
                         deepseek_families};

}  // namespace

const Family* find_family(std::string_view model_type) noexcept {
  for (const auto list : kLists)
    for (const Family& family : list())
      if (family.model_type == model_type) return &family;
  return nullptr;
}

std::vector<std::string_view> known_model_types() {
  std::vector<std::string_view> names;
  for (const auto list : kLists)
    for (const Family& family : list()) names.push_back(family.model_type);
  std::ranges::sort(names);
  return names;
}

void usual_rope(Translation& t) {
  t.rope({.head_dim = t.head_dim()});
}

void usual_keys(Translation& t) {
  t.require("hidden_act", "silu", "swish");
  usual_rope(t);
}

void window_of_all_layers(Translation& t) {
  if (t.config().has("sliding_window") && t.config().boolean_or("use_sliding_window", true))
    t.set("attention.sliding_window", t.config().u32("sliding_window"));
  t.config().ignore("sliding_window");
}

void window_by_layer(Translation& t) {
  const std::vector<bool> sliding = t.layers_called("sliding_attention");
  const std::vector<bool> whole = t.layers_called("full_attention");
  for (std::size_t i = 0; i < sliding.size(); ++i)
    if (!sliding[i] && !whole[i])
      base::raise(ErrorKind::kUnsupported,
                  "config.json: key 'layer_types': expected sliding_attention or full_attention, "
                  "found another word for layer {}",
                  i);
  t.config().ignore("sliding_window");
  if (std::ranges::count(sliding, true) == 0 && !sliding.empty()) return;
  if (t.config().has("sliding_window"))
    t.set("attention.sliding_window", t.config().u32("sliding_window"));
  if (!sliding.empty()) t.set("attention.sliding_window_pattern", sliding);
}

}  // namespace lemma::weights::safetensors
