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
                         deepseek_families,
                         kimi_families,
                         glm5_next_families,
                         glm4_families,
                         olmo_families,
                         fused_families,
                         deepseek_v4_families,
                         gemma4_families,
                         minimax_families,
                         bailing_families};

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

void dense_layers_in_front(Translation& t) {
  const std::vector<bool> dense = t.layers_called("dense", "mlp_layer_types");
  std::uint32_t leading = 0;
  while (leading < dense.size() && dense[leading]) ++leading;
  for (std::size_t i = leading; i < dense.size(); ++i)
    if (dense[i])
      base::raise(ErrorKind::kUnsupported,
                  "config.json: key 'mlp_layer_types': expected dense layers in front only, found "
                  "layer {}",
                  i);
  if (dense.empty()) leading = t.config().u32_or("first_k_dense_replace", 0);
  t.config().ignore("first_k_dense_replace");
  t.set("leading_dense_block_count", leading);
}

void heads_by_layer(Translation& t, const std::vector<bool>& linear, std::uint32_t linear_heads) {
  std::vector<std::uint32_t> heads, kv_heads;
  for (const bool is_linear : linear) {
    heads.push_back(is_linear ? linear_heads : t.heads());
    kv_heads.push_back(is_linear ? 0 : t.kv_heads());
  }
  t.set("attention.head_count", heads);
  t.set("attention.head_count_kv", kv_heads);
}

void expert_groups(Translation& t, std::string_view count, std::string_view kept) {
  if (t.config().u32_or(count, 1) > 1) {
    t.set("expert_group_count", t.config().u32(count));
    t.set("expert_group_used_count", t.config().u32(kept));
  }
  t.config().ignore(kept);
}

void usual_experts(Translation& t, std::string_view path, std::uint32_t experts,
                   std::string_view gate, std::string_view up, std::string_view down) {
  t.stack_experts(path, gate, "blk.#.ffn_gate_exps", experts);
  t.stack_experts(path, up, "blk.#.ffn_up_exps", experts);
  t.stack_experts(path, down, "blk.#.ffn_down_exps", experts);
}

void stacked_experts(Translation& t) {
  constexpr TensorRule kStacks[] = {
      {"layers.#.mlp.experts.gate_up_proj", "blk.#.ffn_gate_up_exps.weight", Change::kNone, true},
      {"layers.#.mlp.experts.down_proj", "blk.#.ffn_down_exps.weight", Change::kNone, true},
  };
  for (const TensorRule& rule : kStacks) t.move(rule);
}

void split_gate_up(Translation& t, std::string_view path, std::string_view gate,
                   std::string_view up) {
  for (std::uint32_t i = 0; i < t.layers(); ++i) {
    const std::string name = numbered(path, i) + ".weight";
    if (!t.has(name)) continue;
    const Source both = t.take(name);
    const std::uint64_t rows = both.shape[0];
    if (rows % 2 != 0)
      base::raise(ErrorKind::kBadFile, "tensor '{}': expected an even number of rows, found {}",
                  both.name, rows);
    t.put(numbered(gate, i) + ".weight", part(both, 0, rows / 2));
    t.put(numbered(up, i) + ".weight", part(both, rows / 2, rows));
  }
}

Source ungrouped(Source fused, std::uint32_t heads, std::uint32_t groups, std::uint32_t head_dim) {
  const std::uint64_t per = heads / groups, width = head_dim;
  const std::vector<std::uint64_t> shape = fused.shape;
  const std::uint64_t rows = (std::uint64_t{heads} + 2 * groups) * width;
  if (shape.empty() || shape[0] != rows)
    base::raise(ErrorKind::kBadFile,
                "tensor '{}': expected {} rows for {} heads and {} KV heads, found {}", fused.name,
                rows, heads, groups, shape.empty() ? 0 : shape[0]);
  if (shape.size() == 1) fused.shape.push_back(1);
  const std::uint64_t queries = heads * width, keys = groups * width;
  Source out = gather_rows(std::move(fused), rows, [=](std::uint64_t row) {
    const std::uint64_t head = row / width;
    const auto from = [&](std::uint64_t group, std::uint64_t place) {
      return (group * (per + 2) + place) * width + row % width;
    };
    if (row < queries) return from(head / per, head % per);
    if (row < queries + keys) return from(head - heads, per);
    return from(head - heads - groups, per + 1);
  });
  out.shape = shape;
  return out;
}

void gelu_kind(Translation& t, std::string_view key) {
  const std::string kind = t.config().string_or(key, "gelu");
  if (kind == "gelu") {
    t.set("feed_forward_activation", "gelu_erf");
  } else if (kind != "gelu_new" && kind != "gelu_pytorch_tanh" && kind != "gelu_fast") {
    base::raise(ErrorKind::kUnsupported,
                "config.json: key '{}': expected gelu, gelu_new, gelu_fast or gelu_pytorch_tanh, "
                "found '{}'",
                key, kind);
  }
}

void describe(const Translation& t, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) t.config().ignore(key);
}

}  // namespace lemma::weights::safetensors
