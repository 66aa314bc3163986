// SPDX-License-Identifier: Apache-2.0
// The hand-written scans against PCRE2 running the published expressions, on texts made of the
// characters at which the rules turn.
#include "text/pretokenizer.hpp"

#include <gtest/gtest.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lemma/error.hpp"

namespace lemma::text {
namespace {

using Words = std::vector<std::string>;

Words split(const PreTokenizer& rules, const std::string& text) {
  std::vector<TextChar> chars;
  classify(text, chars);
  std::vector<std::uint32_t> ends;
  rules.split(chars, ends);
  Words words;
  std::size_t begin = 0;
  for (const std::uint32_t end : ends) {
    const std::size_t stop = end == chars.size() ? text.size() : chars[end].offset;
    words.push_back(text.substr(begin, stop - begin));
    begin = stop;
  }
  EXPECT_EQ(begin, text.size()) << "words must cover the text";
  return words;
}

/// All matches of `pattern`, and what lies between them, in each of `parts` by itself.
Words split_by_expression(const Words& parts, const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr),
      pcre2_code_free);
  EXPECT_TRUE(code) << pattern << " at " << offset;
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  Words words;
  for (const std::string& part : parts) {
    std::size_t at = 0;
    while (at < part.size()) {
      const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(part.data()),
                                    part.size(), at, 0, data.get(), nullptr);
      EXPECT_TRUE(found > 0 || found == PCRE2_ERROR_NOMATCH) << found;
      if (found <= 0) break;
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
      if (ends[0] > at) words.push_back(part.substr(at, ends[0] - at));
      words.push_back(part.substr(ends[0], ends[1] - ends[0]));
      at = ends[1];
    }
    if (at < part.size()) words.push_back(part.substr(at));
  }
  return words;
}

const std::string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kSigns = R"([\p{P}\$\+<=>\^~\|]+)";

struct Rule {
  const char* name;
  Words expressions;  ///< applied one after the other
};

void PrintTo(const Rule& rule, std::ostream* out) {
  *out << rule.name;
}

class PreTokenizerRule : public testing::TestWithParam<Rule> {};

TEST_P(PreTokenizerRule, CutsAsThePublishedExpressionDoes) {
  const PreTokenizer& rules = PreTokenizer::named(GetParam().name);
  // Mongolian vowel separator U+180E is no white space, though PCRE2's \s under UCP has it; it is
  // left out. U+0085, U+00A0, U+3000 are; U+0300 is a mark, U+0661 a number, U+00BD a number.
  const std::vector<std::string> alphabet = {
      " ",      " ",      " ",      "\n",     "\r",         "\t",     "'",      "'",      "s",
      "S",      "t",      "re",     "RE",     "vE",         "ll",     "d",      "m",      "x",
      "1",      "2",      "3",      "4",      ".",          ",",      "!",      "$",      "+",
      "<",      "|",      "`",      "\u00e9", "\u4e16",     "\u00a0", "\u3000", "\u0085", "\u0300",
      "\u0661", "\u00bd", "\u2014", "\u201c", "\U0001f600", "\u017f"};
  std::mt19937 random(7);
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (std::size_t n = random() % 14; n > 0; --n) text += alphabet[random() % alphabet.size()];
    Words expected = text.empty() ? Words{} : Words{text};
    for (const std::string& expression : GetParam().expressions) {
      expected = split_by_expression(expected, expression);
    }
    ASSERT_EQ(split(rules, text), expected) << "text: '" << text << "'";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PreTokenizerRule,
    testing::Values(Rule{"gpt-2", {kGpt2}}, Rule{"llama-bpe", {kLlama3}}, Rule{"qwen2", {kQwen2}},
                    Rule{"starcoder", {R"(\p{N})", kGpt2}},
                    Rule{"default", {kSigns, kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}}),
    [](const auto& rule) {
      std::string name = rule.param.name;
      std::erase(name, '-');
      return name;
    });

TEST(PreTokenizer, KeepsTheLastBlankOfARunForTheNextWord) {
  EXPECT_EQ(split(PreTokenizer::named("gpt-2"), "a   b"), (Words{"a", "  ", " b"}));
}

TEST(PreTokenizer, TakesContractionsInAnyCaseOnlyWhereTheRuleSaysSo) {
  EXPECT_EQ(split(PreTokenizer::named("gpt-2"), "I'LL"), (Words{"I", "'", "LL"}));
  EXPECT_EQ(split(PreTokenizer::named("llama-bpe"), "I'LL"), (Words{"I", "'LL"}));
}

TEST(PreTokenizer, CutsDigitsByThreeOrOneOrNotAtAll) {
  EXPECT_EQ(split(PreTokenizer::named("llama-bpe"), "12345"), (Words{"123", "45"}));
  EXPECT_EQ(split(PreTokenizer::named("qwen2"), "123"), (Words{"1", "2", "3"}));
  EXPECT_EQ(split(PreTokenizer::named("gpt-2"), "12345"), (Words{"12345"}));
}

TEST(PreTokenizer, KeepsBytesThatAreNotUtf8) {
  const std::string text = "a\xff\xfe b\xe4\xb8";
  for (const std::string_view name : PreTokenizer::names()) {
    std::string joined;
    for (const std::string& word : split(PreTokenizer::named(name), text)) joined += word;
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(PreTokenizer, RefusesAnUnknownNameAndListsTheKnownOnes) {
  try {
    PreTokenizer::named("no-such-rule");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    const std::string message = error.what();
    EXPECT_NE(message.find("'no-such-rule'"), std::string::npos);
    for (const std::string_view name : PreTokenizer::names()) {
      EXPECT_NE(message.find(name), std::string::npos) << name;
    }
  }
}

}  // namespace
}  // namespace lemma::text
