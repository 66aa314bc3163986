// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lemma::base {
namespace {

const std::string kMark = "\xef\xbf\xbd";

std::string marks(int count, const std::string& after = "") {
  std::string out;
  for (int i = 0; i < count; ++i) out += kMark;
  return out + after;
}

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string bytes;
    append_utf8(bytes, c);
    const Decoded step = decode_utf8(bytes);
    ASSERT_TRUE(step.valid) << std::hex << static_cast<std::uint32_t>(c);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, bytes.size());
  }
}

TEST(Utf8, EncodesWhatIsNoCodePointAsTheReplacementCharacter) {
  for (char32_t c :
       {char32_t{0xd800}, char32_t{0xdfff}, char32_t{0x110000}, char32_t{0xffffffff}}) {
    std::string bytes;
    append_utf8(bytes, c);
    EXPECT_EQ(bytes, kMark);
  }
}

// The expected marks are those of the Unicode Standard's maximal-subpart practice.
TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(repair_utf8("\xed\xa0\x80"), marks(3));           // a surrogate
  EXPECT_EQ(repair_utf8("\xf0\x80\x80\x41"), marks(3, "A"));  // overlong
  EXPECT_EQ(repair_utf8("\xe2\x80\x41"), marks(1, "A"));      // cut short by a letter
  EXPECT_EQ(repair_utf8("\xc0\xaf"), marks(2));
  EXPECT_EQ(repair_utf8("\xf5"), marks(1));
  EXPECT_EQ(repair_utf8("\x80"), marks(1));
  EXPECT_EQ(repair_utf8("\xf0\x9f\xa6"), marks(1));  // cut short by the end
  EXPECT_EQ(repair_utf8("\xf4\x90\x80\x80"), marks(4));
  EXPECT_EQ(repair_utf8("\xf1\x80\x80\xe1\x80\xc2"), marks(3));
}

TEST(Utf8, LeavesWellFormedTextAlone) {
  const std::string text = "h\xc3\xa9 \xe4\xb8\x96 \xf0\x9f\xa6\x99 \xf4\x8f\xbf\xbf";
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_EQ(repair_utf8(text), text);
  EXPECT_EQ(settled_utf8_prefix(text), text.size());
  EXPECT_TRUE(is_valid_utf8(""));
}

TEST(Utf8, MeasuresTheValidPrefix) {
  EXPECT_EQ(valid_utf8_prefix("ab\xff"
                              "cd"),
            2u);
  EXPECT_EQ(valid_utf8_prefix("\xc3\xa9\xe2\x80"), 2u);
  EXPECT_FALSE(
      is_valid_utf8("ab\xff"
                    "cd"));
}

TEST(Utf8, HoldsBackOnlyASequenceThatMayStillComplete) {
  EXPECT_EQ(settled_utf8_prefix(""), 0u);
  EXPECT_EQ(settled_utf8_prefix("a\xf0\x9f\xa6"), 1u);
  EXPECT_EQ(settled_utf8_prefix("a\xf0\x9f"), 1u);
  EXPECT_EQ(settled_utf8_prefix("a\xf0"), 1u);
  EXPECT_EQ(settled_utf8_prefix("a\xe2\x80"), 1u);
  EXPECT_EQ(settled_utf8_prefix("\xed\xa0"), 2u);       // a surrogate's start can never complete
  EXPECT_EQ(settled_utf8_prefix("a\x80\x80\x80"), 4u);  // stray continuations are final
  EXPECT_EQ(settled_utf8_prefix("\xc3\xa9\x80"), 3u);
  EXPECT_EQ(settled_utf8_prefix("\xff"), 1u);
}

TEST(Utf8, ReadsTheSameWholeAndStreamedByteByByte) {
  const std::vector<std::string> cases = {"\xed\xa0\x80",
                                          "\xf0\x80\x80\x41",
                                          "\xe2\x80\x41",
                                          "\xc0\xaf",
                                          "\xf5",
                                          "\x80",
                                          "x\xf0\x9f\xa6\x99y",
                                          "\xf0\x9f\xa6\xe4\xb8\x96\xe4"};
  for (const std::string& text : cases) {
    std::string held, streamed;
    for (char byte : text) {
      held.push_back(byte);
      const std::size_t ready = settled_utf8_prefix(held);
      streamed += repair_utf8(held.substr(0, ready));
      held.erase(0, ready);
      ASSERT_LE(held.size(), 3u);
    }
    EXPECT_EQ(streamed + repair_utf8(held), repair_utf8(text));
  }
}

}  // namespace
}  // namespace lemma::base
