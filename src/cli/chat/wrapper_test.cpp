// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/wrapper.hpp"

#include <gtest/gtest.h>

namespace lemma::cli::chat {
namespace {

/// The same however it comes.
std::string wrapped(const std::string& text, std::size_t columns) {
  Wrapper whole;
  std::string once = whole.take(text, columns);
  once += whole.flush();
  Wrapper parts;
  std::string many;
  for (const char c : text) many += parts.take(std::string_view(&c, 1), columns);
  EXPECT_EQ(many + parts.flush(), once);
  return once;
}

TEST(Wrapper, BreaksLinesBetweenWords) {
  EXPECT_EQ(wrapped("one two three four", 9), "one two\nthree\nfour");
  EXPECT_EQ(wrapped("one two  three\n  four five", 10), "one two\nthree\n  four\nfive");
  EXPECT_EQ(wrapped("exactly ten", 11), "exactly ten");
  EXPECT_EQ(wrapped("abcdefghijkl mn", 5), "abcdefghijkl mn") << "the terminal breaks it";
}

TEST(Wrapper, LeavesCodeAndWideScreensAlone) {
  EXPECT_EQ(wrapped("a b c\n```\nlong line of code\n```\nx y z", 4),
            "a b\nc\n```\nlong line of code\n```\nx y\nz");
  EXPECT_EQ(wrapped("one two three", 0), "one two three");
}

TEST(Wrapper, HoldsAWordBackUntilItIsWhole) {
  Wrapper wrapper;
  EXPECT_EQ(wrapper.take("one tw", 8), "one");
  EXPECT_EQ(wrapper.take("o thr", 8), " two");
  EXPECT_EQ(wrapper.flush(), "\nthr");
}

}  // namespace
}  // namespace lemma::cli::chat
