// SPDX-License-Identifier: Apache-2.0
#include "base/wildcard.hpp"

#include <gtest/gtest.h>

#include <string>

namespace lemma::base {
namespace {

TEST(Wildcard, PlainTextFitsItselfOnly) {
  EXPECT_TRUE(matches_wildcard("abc", "abc"));
  EXPECT_FALSE(matches_wildcard("abc", "abcd"));
  EXPECT_FALSE(matches_wildcard("abc", "ab"));
  EXPECT_TRUE(matches_wildcard("", ""));
  EXPECT_FALSE(matches_wildcard("", "a"));
}

TEST(Wildcard, AStarStandsForAnyTextAndNone) {
  EXPECT_TRUE(matches_wildcard("blk.*.ffn_*", "blk.12.ffn_down.weight"));
  EXPECT_TRUE(matches_wildcard("*a*b*", "xxaabxbx"));
  EXPECT_TRUE(matches_wildcard("a***", "a"));
  EXPECT_FALSE(matches_wildcard("a*b", "abc"));
}

TEST(Wildcard, AQuestionMarkStandsForOneByte) {
  EXPECT_TRUE(matches_wildcard("blk.?.x", "blk.3.x"));
  EXPECT_FALSE(matches_wildcard("blk.?.x", "blk.13.x"));
  EXPECT_FALSE(matches_wildcard("?", ""));
}

TEST(Wildcard, AStarInTheTextIsAnOrdinaryByte) {
  EXPECT_TRUE(matches_wildcard("a*c", "a*bc"));
  EXPECT_FALSE(matches_wildcard("a?c", "a*bc"));
}

TEST(Wildcard, ManyStarsTakeNoLongerThanTheProductOfLengths) {
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "*a";
  EXPECT_FALSE(matches_wildcard(pattern + "b", std::string(2000, 'a')));
}

}  // namespace
}  // namespace lemma::base
