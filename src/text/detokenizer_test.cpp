// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/sample_vocabulary.hpp"

namespace lemma::text {
namespace {

class DetokenizerTest : public testing::Test {
 protected:
  TokenId byte(unsigned char value) const { return 3 + value; }
  TokenId id(std::string_view text) const { return *tokenizer_->find(text); }

  std::unique_ptr<const Tokenizer> tokenizer_ = Tokenizer::from_metadata(sample::sentencepiece());
};

TEST_F(DetokenizerTest, HoldsBytesBackUntilTheCharacterIsWhole) {
  Detokenizer out(*tokenizer_);
  EXPECT_EQ(out.push(byte(0xf0)), "");
  EXPECT_EQ(out.push(byte(0x9f)), "");
  EXPECT_TRUE(out.holds_bytes());
  EXPECT_EQ(out.push(byte(0xa6)), "");
  EXPECT_EQ(out.push(byte(0x99)), "\U0001f999");
  EXPECT_FALSE(out.holds_bytes());
  EXPECT_EQ(out.finish(), "");
}

TEST_F(DetokenizerTest, ReplacesEachMaximalSubpart) {
  Detokenizer out(*tokenizer_);
  // F0 9F begins a character that 'a' ends; C0 can begin none.
  EXPECT_EQ(out.push(byte(0xf0)), "");
  EXPECT_EQ(out.push(byte(0x9f)), "");
  EXPECT_EQ(out.push(id("a")), "\ufffda");
  EXPECT_EQ(out.push(byte(0xc0)), "\ufffd");
  EXPECT_EQ(out.push(byte(0x80)), "\ufffd");
}

TEST_F(DetokenizerTest, FlushesAnUnfinishedCharacterAtTheEnd) {
  Detokenizer replacing(*tokenizer_);
  EXPECT_EQ(replacing.push(byte(0xe4)), "");
  EXPECT_EQ(replacing.push(byte(0xb8)), "");
  EXPECT_EQ(replacing.finish(), "\ufffd");
  EXPECT_EQ(replacing.finish(), "");
  Detokenizer keeping(*tokenizer_, {.invalid_bytes = InvalidBytes::kKeep});
  EXPECT_EQ(keeping.push(byte(0xe4)), "");
  EXPECT_EQ(keeping.push(byte(0xb8)), "");
  EXPECT_EQ(keeping.finish(), "\xe4\xb8");
}

TEST_F(DetokenizerTest, HoldsAtMostThreeBytesOfAnEndlessBrokenRun) {
  Detokenizer out(*tokenizer_, {.invalid_bytes = InvalidBytes::kKeep});
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += out.push(byte(0xf0));
    EXPECT_GE(text.size() + 3, static_cast<std::size_t>(i + 1));
  }
  EXPECT_EQ(text + out.finish(), std::string(1000, '\xf0'));
}

TEST_F(DetokenizerTest, KeepsTheFirstBlankOfAContinuationAndDropsThatOfAText) {
  Detokenizer continuation(*tokenizer_);
  EXPECT_EQ(continuation.push(id("\u2581a")), " a");
  Detokenizer start(*tokenizer_, {.at_text_start = true});
  EXPECT_EQ(start.push(1), "");  // a hidden BOS is not the start of the text
  EXPECT_EQ(start.push(id("\u2581a")), "a");
  EXPECT_EQ(start.push(id("\u2581a")), " a");
}

TEST_F(DetokenizerTest, HidesOrShowsControlTokensAndKeepsUserDefinedOnes) {
  Detokenizer hiding(*tokenizer_);
  EXPECT_EQ(hiding.push(2), "");
  EXPECT_EQ(hiding.push(id("<|tool|>")), "<|tool|>");
  Detokenizer showing(*tokenizer_, {.show_special = true});
  EXPECT_EQ(showing.push(2), "</s>");
}

TEST_F(DetokenizerTest, JoinsACharacterAcrossAHiddenToken) {
  Detokenizer out(*tokenizer_);
  EXPECT_EQ(out.push(byte(0xc3)), "");
  EXPECT_EQ(out.push(2), "");
  EXPECT_EQ(out.push(byte(0xa9)), "\u00e9");
}

}  // namespace
}  // namespace lemma::text
