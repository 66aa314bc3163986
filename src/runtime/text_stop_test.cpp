// SPDX-License-Identifier: Apache-2.0
#include "runtime/text_stop.hpp"

#include <gtest/gtest.h>

#include "lemma/error.hpp"

namespace lemma::runtime {
namespace {

struct Outcome {
  std::vector<std::string> sent;  ///< by push, the last one by finish
  std::string text;               ///< all of them
  std::optional<std::string> matched;
};

Outcome feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  TextStop stop(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) outcome.sent.push_back(stop.push(piece));
  outcome.sent.push_back(stop.finish());
  for (const std::string& text : outcome.sent) outcome.text += text;
  outcome.matched = stop.matched();
  return outcome;
}

TEST(TextStop, SendsNothingOfAStopStringThatSpansPieces) {
  const Outcome outcome = feed({"DEFGHIJ"}, {"ABC", "DEF", "G", "HI", "J"});
  EXPECT_EQ(outcome.sent, (std::vector<std::string>{"ABC", "", "", "", "", ""}));
  EXPECT_EQ(outcome.matched, "DEFGHIJ");
}

TEST(TextStop, DropsWhatFollowsTheMatchInsideOnePiece) {
  const Outcome outcome = feed({"STOP"}, {"xSTOPy", "z"});
  EXPECT_EQ(outcome.text, "x");
  EXPECT_EQ(outcome.matched, "STOP");
}

TEST(TextStop, LetsTheStringThatIsCompleteFirstWin) {
  EXPECT_EQ(feed({"abc", "ab"}, {"xabc"}).matched, "ab");
  EXPECT_EQ(feed({"ab", "abc"}, {"xab", "c"}).matched, "ab");
  const Outcome inner = feed({"abcdef", "cd"}, {"abcdef"});
  EXPECT_EQ(inner.matched, "cd");
  EXPECT_EQ(inner.text, "ab");
}

TEST(TextStop, TakesTheLongestOfThoseThatEndTogether) {
  const Outcome outcome = feed({"D", "BCD", "CD"}, {"ABCD"});
  EXPECT_EQ(outcome.matched, "BCD");
  EXPECT_EQ(outcome.text, "A");
}

TEST(TextStop, FindsAnOverlappingPrefix) {
  const Outcome outcome = feed({"aab"}, {"a", "a", "a", "b"});
  EXPECT_EQ(outcome.text, "a");
  EXPECT_EQ(outcome.matched, "aab");
  EXPECT_EQ(feed({"ababac"}, {"abababac"}).text, "ab");
}

TEST(TextStop, MatchesInTheFirstPiece) {
  const Outcome outcome = feed({"Hi"}, {"Hi"});
  EXPECT_EQ(outcome.text, "");
  EXPECT_EQ(outcome.matched, "Hi");
}

TEST(TextStop, MatchesAnEmoji) {
  const Outcome outcome = feed({"\U0001F60A"}, {"ok ", "\U0001F60A", "!"});
  EXPECT_EQ(outcome.text, "ok ");
  EXPECT_EQ(outcome.matched, "\U0001F60A");
}

TEST(TextStop, HoldsBackNoPartOfACharacterThatOnlyBeginsAlike) {
  // U+1F60A and U+1F60B share their first three bytes.
  const Outcome outcome = feed({"\U0001F60A"}, {"\U0001F60B"});
  EXPECT_EQ(outcome.sent.front(), "\U0001F60B");
}

TEST(TextStop, ReleasesWhatTurnsOutNotToBeAStop) {
  const Outcome outcome = feed({"STOP"}, {"S", "T", "O", "NE"});
  EXPECT_EQ(outcome.sent, (std::vector<std::string>{"", "", "", "STONE", ""}));
  EXPECT_FALSE(outcome.matched);
}

TEST(TextStop, ReturnsTheHeldTextAtTheEnd) {
  const Outcome outcome = feed({"STOP"}, {"xST"});
  EXPECT_EQ(outcome.sent, (std::vector<std::string>{"x", "ST"}));
  EXPECT_FALSE(outcome.matched);
}

TEST(TextStop, PassesEverythingOnWithoutStops) {
  EXPECT_EQ(feed({}, {"a", "b"}).sent, (std::vector<std::string>{"a", "b", ""}));
}

TEST(TextStop, DoesNotDependOnHowTheTextIsCut) {
  const std::string text = "ab\U0001F60Aabaabcabd\n\nabab";
  const std::vector<std::vector<std::string>> sets = {
      {"abaabd", "abd"}, {"\n\n"}, {"aabca", "bcab"}, {"zz"}, {"abab"}};
  for (const auto& stops : sets) {
    const Outcome whole = feed(stops, {text});
    for (std::size_t size = 1; size < text.size(); ++size) {
      std::vector<std::string> pieces;
      for (std::size_t at = 0; at < text.size(); at += size)
        pieces.push_back(text.substr(at, size));
      const Outcome cut = feed(stops, pieces);
      EXPECT_EQ(cut.text, whole.text) << size;
      EXPECT_EQ(cut.matched, whole.matched) << size;
    }
  }
}

TEST(TextStop, RefusesStringsThatCanNeverMatch) {
  EXPECT_THROW(TextStop({""}), Error);
  EXPECT_THROW(TextStop({"ok", "\xC3"}), Error);
}

}  // namespace
}  // namespace lemma::runtime
