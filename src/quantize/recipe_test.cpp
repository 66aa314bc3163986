// SPDX-License-Identifier: Apache-2.0
#include "quantize/recipe.hpp"

#include <gtest/gtest.h>

#include "weights/expect_error.hpp"

namespace lemma::quantize {
namespace {

using weights::expect_error;

Format format_of(std::string_view recipe, std::string_view name, std::uint32_t layer = 0,
                 std::uint32_t layers = 32, std::uint64_t cols = 4096, bool tied = false) {
  return choose(recipe_by_name(recipe), {},
                {.name = name,
                 .role = role_of(name, tied),
                 .layer = layer,
                 .layers = layers,
                 .cols = cols})
      .format;
}

TEST(Recipe, APlainFormatIsEveryMatrix) {
  for (const char* name :
       {"blk.3.attn_q.weight", "blk.3.ffn_down_exps.weight", "token_embd.weight"})
    EXPECT_EQ(format_of("Q8_0", name), Format::kQ8_0) << name;
  EXPECT_EQ(format_of("q8_0", "output.weight"), Format::kQ8_0);
}

TEST(Recipe, AHeadKeepsSixBitsAtLeast) {
  EXPECT_EQ(format_of("Q4_0", "output.weight"), Format::kQ6_K);
  EXPECT_EQ(format_of("Q4_0", "token_embd.weight"), Format::kQ4_0);
  EXPECT_EQ(format_of("Q4_0", "token_embd.weight", 0, 32, 4096, true), Format::kQ6_K);
  EXPECT_EQ(format_of("F16", "output.weight"), Format::kF16);
}

TEST(Recipe, MixedRecipesSpendMoreAtBothEndsOfTheStack) {
  // 32 layers: the first and the last four, and every third between.
  for (const std::uint32_t layer : {0u, 3u, 6u, 28u, 31u})
    EXPECT_EQ(format_of("Q4_K_M", "blk.9.ffn_down.weight", layer), Format::kQ6_K) << layer;
  for (const std::uint32_t layer : {4u, 5u, 7u, 26u})
    EXPECT_EQ(format_of("Q4_K_M", "blk.9.ffn_down.weight", layer), Format::kQ4_K) << layer;
  EXPECT_EQ(format_of("Q4_K_M", "blk.0.attn_q.weight"), Format::kQ4_K);
  EXPECT_EQ(format_of("Q4_K_M", "output.weight"), Format::kQ6_K);
}

TEST(Recipe, TheTwoBitMixtureOfExpertsTreatsExpertsApart) {
  EXPECT_EQ(format_of("MOE_2BIT", "blk.5.ffn_gate_exps.weight"), Format::kIQ2_XXS);
  EXPECT_EQ(format_of("MOE_2BIT", "blk.5.ffn_down_exps.weight"), Format::kQ2_K);
  EXPECT_EQ(format_of("MOE_2BIT", "blk.5.ffn_up_shexp.weight"), Format::kQ8_0);
  EXPECT_EQ(format_of("MOE_2BIT", "blk.5.attn_q_b.weight"), Format::kQ8_0);
  EXPECT_EQ(format_of("MOE_2BIT", "token_embd.weight"), Format::kF16);
}

TEST(Recipe, BlocksThatDoNotFitGiveWayAloud) {
  const Choice choice = choose(recipe_by_name("Q4_K"), {},
                               {.name = "blk.0.attn_q.weight", .role = Role::kQuery, .cols = 96});
  EXPECT_EQ(choice.format, Format::kQ5_0);
  EXPECT_EQ(choice.note, "rows of 96 elements do not hold blocks of 256: Q5_0 instead of Q4_K");
  EXPECT_EQ(format_of("IQ2_XXS", "blk.0.attn_q.weight", 0, 32, 50), Format::kF16);
}

TEST(Recipe, AUsersRuleComesFirst) {
  const std::vector<NamedRule> rules = {parse_rule("blk.0.*=Q6_K"), parse_rule("*ffn*=Q8_0")};
  const auto choice = [&](std::string_view name, std::uint64_t cols) {
    return choose(recipe_by_name("Q4_K"), rules, {.name = name, .cols = cols}).format;
  };
  EXPECT_EQ(choice("blk.0.ffn_up.weight", 256), Format::kQ6_K);
  EXPECT_EQ(choice("blk.1.ffn_up.weight", 256), Format::kQ8_0);
  EXPECT_EQ(choice("blk.1.attn_q.weight", 256), Format::kQ4_K);
  expect_error(ErrorKind::kUsage, "'blk.0.*=Q6_K': blk.0.ffn_up.weight has rows of 64 elements",
               [&] { choice("blk.0.ffn_up.weight", 64); });
}

TEST(Recipe, RefusesWhatItDoesNotKnow) {
  expect_error(ErrorKind::kUsage, "no format or recipe is called 'Q9_9'; known are Q2_K, Q3_K_S",
               [] { recipe_by_name("Q9_9"); });
  expect_error(ErrorKind::kUsage, "'I32'", [] { recipe_by_name("I32"); });
  expect_error(ErrorKind::kUsage, "expected PATTERN=FORMAT", [] { parse_rule("blk.0"); });
  expect_error(ErrorKind::kUsage, "'Q9' is no format", [] { parse_rule("a=Q9"); });
}

TEST(Recipe, EveryMixedRecipeHasItsOwnName) {
  for (const std::string_view name : mixed_recipes()) EXPECT_EQ(recipe_by_name(name).name, name);
}

}  // namespace
}  // namespace lemma::quantize
