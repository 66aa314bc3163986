// SPDX-License-Identifier: Apache-2.0
#include "quantize/recipe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/raise.hpp"
#include "base/wildcard.hpp"

namespace lemma::quantize {
namespace {

using enum Role;
using enum Part;
using F = Format;

// What stands behind "blk.N.", without ".weight".
constexpr auto kRoles = std::to_array<std::pair<std::string_view, Role>>({
    {"attn_q", kQuery},
    {"attn_q_a", kQuery},
    {"attn_q_b", kQuery},
    {"attn_k", kKey},
    {"attn_kv", kKey},
    {"attn_kv_a_mqa", kKey},
    {"attn_k_b", kKey},
    {"attn_kv_b", kValue},
    {"attn_v", kValue},
    {"attn_v_b", kValue},
    {"attn_qkv", kQkv},
    {"attn_output", kAttentionOutput},
    {"attn_output_a", kAttentionOutput},
    {"attn_output_b", kAttentionOutput},
    {"ffn_gate", kGateUp},
    {"ffn_up", kGateUp},
    {"ffn_down", kDown},
    {"ffn_gate_exps", kExpertGateUp},
    {"ffn_up_exps", kExpertGateUp},
    {"ffn_gate_up_exps", kExpertGateUp},
    {"ffn_down_exps", kExpertDown},
    {"ffn_gate_shexp", kSharedExpert},
    {"ffn_up_shexp", kSharedExpert},
    {"ffn_down_shexp", kSharedExpert},
});

// The mixed recipes. Down projections and values are the most sensitive, and more so at both ends
// of the stack; the head decides on every token.
const std::vector<Recipe>& mixed() {
  static const std::vector<Recipe> recipes = {
      {"Q2_K",
       F::kQ2_K,
       {{kOutput, kAll, F::kQ6_K},
        {kValue, kAll, F::kQ4_K},
        {kAttentionOutput, kAll, F::kQ3_K},
        {kQkv, kAll, F::kQ3_K},
        {kDown, kAll, F::kQ3_K},
        {kExpertDown, kAll, F::kQ3_K},
        {kSharedExpert, kAll, F::kQ3_K}}},
      {"Q3_K_S", F::kQ3_K, {{kOutput, kAll, F::kQ6_K}}},
      {"Q3_K_M",
       F::kQ3_K,
       {{kOutput, kAll, F::kQ6_K},
        {kValue, kFirstEighth, F::kQ5_K},
        {kValue, kAll, F::kQ4_K},
        {kAttentionOutput, kAll, F::kQ4_K},
        {kQkv, kAll, F::kQ4_K},
        {kDown, kFirstSixteenth, F::kQ5_K},
        {kDown, kEnds, F::kQ4_K},
        {kExpertDown, kFirstSixteenth, F::kQ5_K},
        {kExpertDown, kEnds, F::kQ4_K},
        {kSharedExpert, kAll, F::kQ5_K}}},
      {"Q3_K_L",
       F::kQ3_K,
       {{kOutput, kAll, F::kQ6_K},
        {kValue, kAll, F::kQ5_K},
        {kAttentionOutput, kAll, F::kQ5_K},
        {kQkv, kAll, F::kQ5_K},
        {kDown, kAll, F::kQ5_K},
        {kExpertDown, kAll, F::kQ5_K},
        {kSharedExpert, kAll, F::kQ5_K}}},
      {"Q4_K_S",
       F::kQ4_K,
       {{kOutput, kAll, F::kQ6_K},
        {kValue, kFirstEighth, F::kQ5_K},
        {kDown, kFirstEighth, F::kQ5_K},
        {kExpertDown, kFirstEighth, F::kQ5_K},
        {kSharedExpert, kAll, F::kQ5_K}}},
      {"Q4_K_M",
       F::kQ4_K,
       {{kOutput, kAll, F::kQ6_K},
        {kValue, kEnds, F::kQ6_K},
        {kQkv, kAll, F::kQ5_K},
        {kDown, kEnds, F::kQ6_K},
        {kExpertDown, kEnds, F::kQ6_K},
        {kSharedExpert, kAll, F::kQ6_K}}},
      {"Q5_K_S", F::kQ5_K, {{kOutput, kAll, F::kQ6_K}, {kSharedExpert, kAll, F::kQ6_K}}},
      {"Q5_K_M",
       F::kQ5_K,
       {{kOutput, kAll, F::kQ6_K},
        {kValue, kEnds, F::kQ6_K},
        {kQkv, kAll, F::kQ6_K},
        {kDown, kEnds, F::kQ6_K},
        {kExpertDown, kEnds, F::kQ6_K},
        {kSharedExpert, kAll, F::kQ6_K}}},
      {"IQ2_M",
       F::kIQ2_S,
       {{kOutput, kAll, F::kQ5_K},
        {kEmbedding, kAll, F::kIQ3_S},
        {kValue, kAll, F::kQ4_K},
        {kAttentionOutput, kAll, F::kIQ3_S},
        {kDown, kFirstEighth, F::kIQ3_S},
        {kExpertDown, kFirstEighth, F::kIQ3_S},
        {kSharedExpert, kAll, F::kQ5_K}}},
      {"IQ3_M",
       F::kIQ3_S,
       {{kOutput, kAll, F::kQ6_K},
        {kValue, kAll, F::kQ4_K},
        {kAttentionOutput, kAll, F::kQ4_K},
        {kDown, kFirstEighth, F::kQ4_K},
        {kExpertDown, kFirstEighth, F::kQ4_K},
        {kSharedExpert, kAll, F::kQ5_K}}},
      // Routed experts at two bits, where nearly all of the bytes are, and the rest at eight: the
      // proportions of the two-bit DeepSeek V4 files.
      {"MOE_2BIT",
       F::kF16,
       {{kExpertGateUp, kAll, F::kIQ2_XXS},
        {kExpertDown, kAll, F::kQ2_K},
        {kOutput, kAll, F::kQ8_0},
        {kQuery, kAll, F::kQ8_0},
        {kKey, kAll, F::kQ8_0},
        {kValue, kAll, F::kQ8_0},
        {kQkv, kAll, F::kQ8_0},
        {kAttentionOutput, kAll, F::kQ8_0},
        {kGateUp, kAll, F::kQ8_0},
        {kDown, kAll, F::kQ8_0},
        {kSharedExpert, kAll, F::kQ8_0}}},
  };
  return recipes;
}

// What takes the place of a format whose blocks do not fit the rows of a matrix.
Format wider(Format format) {
  switch (format) {
    case F::kQ2_K:
    case F::kQ3_K:
    case F::kIQ1_S:
    case F::kIQ1_M:
    case F::kIQ2_XXS:
    case F::kIQ2_XS:
    case F::kIQ2_S:
    case F::kIQ3_XXS:
    case F::kIQ3_S:
    case F::kIQ4_XS:
    case F::kTQ1_0:
    case F::kTQ2_0:
      return F::kIQ4_NL;
    case F::kQ4_K:
      return F::kQ5_0;
    case F::kQ5_K:
      return F::kQ5_1;
    case F::kQ6_K:
    case F::kQ8_K:
      return F::kQ8_0;
    default:
      return F::kF16;
  }
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::toupper(static_cast<unsigned char>(x)) ==
           std::toupper(static_cast<unsigned char>(y));
  });
}

bool holds(Part part, std::uint32_t layer, std::uint32_t layers) {
  const std::uint32_t eighth = layers / 8;
  switch (part) {
    case kAll:
      return true;
    case kFirstEighth:
      return layer < std::max(eighth, 1u);
    case kFirstSixteenth:
      return layer < std::max(layers / 16, 1u);
    case kEnds:
      return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
  }
  return false;
}

std::string known_names() {
  std::vector<std::string_view> names = mixed_recipes();
  for (const Format format : weights::kFormats)
    if (weights::traits(format).encode != nullptr &&
        std::none_of(names.begin(), names.end(),
                     [&](auto name) { return same_name(name, weights::traits(format).name); }))
      names.push_back(weights::traits(format).name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool fits(Format format, std::uint64_t cols) {
  return cols % weights::traits(format).block_elements == 0;
}

}  // namespace

Role role_of(std::string_view name, bool tied) noexcept {
  constexpr std::string_view kWeight = ".weight", kBlock = "blk.";
  if (!name.ends_with(kWeight)) return kOther;
  name.remove_suffix(kWeight.size());
  if (name == "token_embd") return tied ? kOutput : kEmbedding;
  if (name == "output") return kOutput;
  if (!name.starts_with(kBlock)) return kOther;
  const std::size_t dot = name.find('.', kBlock.size());
  if (dot == std::string_view::npos) return kOther;
  name.remove_prefix(dot + 1);
  for (const auto& [stem, role] : kRoles)
    if (stem == name) return role;
  return kOther;
}

NamedRule parse_rule(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0)
    base::raise(ErrorKind::kUsage,
                "expected PATTERN=FORMAT, as in 'blk.*.ffn_down*=Q6_K', found '{}'", text);
  const std::string_view name = text.substr(equals + 1);
  const auto format = weights::format_by_name(name);
  if (!format || weights::traits(*format).encode == nullptr)
    base::raise(ErrorKind::kUsage, "'{}': '{}' is no format that can be written", text, name);
  return {std::string(text.substr(0, equals)), *format};
}

std::vector<std::string_view> mixed_recipes() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : mixed()) names.push_back(recipe.name);
  return names;
}

Recipe recipe_by_name(std::string_view name) {
  for (const Recipe& recipe : mixed())
    if (same_name(recipe.name, name)) return recipe;
  const auto format = weights::format_by_name(name);
  if (!format || weights::traits(*format).encode == nullptr)
    base::raise(ErrorKind::kUsage, "no format or recipe is called '{}'; known are {}", name,
                known_names());
  const weights::FormatTraits& traits = weights::traits(*format);
  Recipe recipe{traits.name, *format, {}};
  // A head below six bits costs more quality than it saves bytes.
  const weights::FormatTraits& head = weights::traits(F::kQ6_K);
  if (traits.block_bytes * head.block_elements < head.block_bytes * traits.block_elements)
    recipe.rules.push_back({kOutput, kAll, F::kQ6_K});
  return recipe;
}

Choice choose(const Recipe& recipe, const std::vector<NamedRule>& rules,
              const TensorFacts& tensor) {
  for (const NamedRule& rule : rules) {
    if (!base::matches_wildcard(rule.pattern, tensor.name)) continue;
    const weights::FormatTraits& traits = weights::traits(rule.format);
    if (!fits(rule.format, tensor.cols))
      base::raise(ErrorKind::kUsage,
                  "'{}={}': {} has rows of {} elements, which blocks of {} do not fit",
                  rule.pattern, traits.name, tensor.name, tensor.cols, traits.block_elements);
    return {rule.format, ""};
  }
  Format wished = recipe.base;
  for (const Rule& rule : recipe.rules) {
    if (rule.role != tensor.role || !holds(rule.part, tensor.layer, tensor.layers)) continue;
    wished = rule.format;
    break;
  }
  Format format = wished;
  while (!fits(format, tensor.cols)) format = wider(format);
  if (format == wished) return {format, ""};
  return {format, fmt::format("rows of {} elements do not hold blocks of {}: {} instead of {}",
                              tensor.cols, weights::traits(wished).block_elements,
                              weights::traits(format).name, weights::traits(wished).name)};
}

}  // namespace lemma::quantize
