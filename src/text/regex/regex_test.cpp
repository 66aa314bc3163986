// SPDX-License-Identifier: Apache-2.0
// The two-pass matcher against PCRE2, a backtracking engine, and by hand where the dialects differ.
#include "text/regex/regex.hpp"

#include <gtest/gtest.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <random>

#include "lemma/error.hpp"

namespace lemma::text::regex {
namespace {

std::vector<Match> find(const std::string& pattern, std::string_view text) {
  Scratch scratch;
  std::vector<Match> matches;
  Regex::compile(pattern).find_all(text, scratch, matches);
  return matches;
}

/// The matches in brackets.
std::string marked(const std::string& pattern, std::string_view text) {
  std::string out;
  std::size_t at = 0;
  for (const Match& m : find(pattern, text)) {
    out.append(text.substr(at, m.begin - at));
    out.append("[").append(text.substr(m.begin, m.end - m.begin)).append("]");
    at = m.end;
  }
  return out.append(text.substr(at));
}

std::vector<Match> find_by_oracle(const std::string& pattern, const std::string& text) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr),
      pcre2_code_free);
  EXPECT_TRUE(code) << pattern;
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  std::vector<Match> matches;
  std::size_t at = 0;
  while (at <= text.size()) {
    if (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0,
                    data.get(), nullptr) <= 0) {
      break;
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const Match m{static_cast<std::uint32_t>(ends[0]), static_cast<std::uint32_t>(ends[1])};
    const bool empty = m.begin == m.end;
    if (!empty || matches.empty() || matches.back().end != m.begin) matches.push_back(m);
    at = empty ? m.end + 1 : m.end;
  }
  return matches;
}

class AgainstPcre2 : public testing::TestWithParam<const char*> {};

TEST_P(AgainstPcre2, FindsTheSameMatches) {
  const Regex regex = Regex::compile(GetParam());
  std::mt19937 random(3);
  const std::string alphabet = "aabbc  1\n'.";
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::size_t n = random() % 16; n > 0; --n) text += alphabet[random() % alphabet.size()];
    Scratch scratch;
    std::vector<Match> matches;
    regex.find_all(text, scratch, matches);
    ASSERT_EQ(matches, find_by_oracle(GetParam(), text)) << "text: '" << text << "'";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Patterns, AgainstPcre2,
    testing::Values("a", "a|ab", "ab|a", "a*b", "a*?b", "(a|b)*c", "a+?", "(?:ab?)+c{0,2}", "a{2}",
                    "a{1,2}b", "a{2,}", "(a|ab)(c|bcd)?", "a*", "(a*)*b", "(a*)+", "a??b",
                    R"(\s+(?!\S)|\s+)", "(?=ab)a", "(?!ab)[ab]", "a(?=b|c)", "a(?!b(?!c))",
                    "(?<=a)b", "(?<!a)b", R"(\b[a-c]+\b)", R"(\d+|[^\s\d]+)", "[^a]+", "[a-b1]+",
                    "[^ab\n]*", "a++b", "a*+a", "a?+a", "(?>a+)b", "(?i:A)b", "(?i)B|C",
                    R"((?=(b{3})+(?!b)))", "(a|b|)c", R"(\A[ab]|c\z)", "a.b", "(|a)b", "x*"),
    [](const auto& pattern) { return "Pattern" + std::to_string(pattern.index); });

TEST(Regex, PrefersTheFirstBranchThatLeadsToAMatch) {
  EXPECT_EQ(marked("a|ab", "ab"), "[a]b");
  EXPECT_EQ(marked("(a|ab)c", "abc"), "[abc]");
}

TEST(Regex, ReadsOnigurumasDialect) {
  EXPECT_EQ(marked("[a-c&&[^b]]+", "abc"), "[a]b[c]");
  EXPECT_EQ(marked("[a[12]]+", "a1b"), "[a1]b");
  EXPECT_EQ(marked("a{1,2}+b", "aaaab"), "[aaaab]") << "a counted repeat repeats";
  EXPECT_EQ(marked("^a", "a\na"), "[a]\n[a]") << "every line has a start";
  EXPECT_EQ(marked("a$", "a\na"), "[a]\n[a]");
  EXPECT_EQ(marked(R"(\h+)", "xAfG9"), "x[Af]G[9]");
  EXPECT_EQ(marked("c(?i)a|b", "cAcB"), "[cA][cB]") << "the flag takes the branches with it";
  EXPECT_EQ(marked("[[:punct:]]", "a+\u20ac."), "a[+][\u20ac][.]");
  EXPECT_EQ(marked(R"(\p{Han}|\p{^L})", "a\u4e161"), "a[\u4e16][1]");
}

TEST(Regex, FoldsCaseBeyondAscii) {
  EXPECT_EQ(marked("(?i:s)", "sS\u017f"), "[s][S][\u017f]");
  EXPECT_EQ(marked("(?i:\u00e9)", "\u00c9"), "[\u00c9]");
}

TEST(Regex, CountsBytesThatAreNotUtf8AsSymbols) {
  EXPECT_EQ(marked(R"(\p{S}+)", "a\xff\xe4\xb8z"), "a[\xff\xe4\xb8]z");
}

TEST(Regex, TakesTheSameStepsForEveryPatternOfALength) {
  // Backtracking takes exponential or quadratic time for each of these.
  for (const char* pattern : {"(a*)*b", "(a|a)*b", "a*b|a", "(?=a*b)a|a", "(?:a{1,3})+b"}) {
    const Regex regex = Regex::compile(pattern);
    std::size_t steps[2] = {};
    for (const std::size_t n : {1000, 4000}) {
      Scratch scratch;
      std::vector<Match> matches;
      regex.find_all(std::string(n, 'a'), scratch, matches);
      steps[n == 4000] = scratch.steps;
    }
    EXPECT_LE(steps[1], 4 * steps[0] + 16) << pattern;
    EXPECT_LE(steps[1], 3 * 4000u + 16) << pattern;
  }
}

TEST(Regex, RefusesWhatIsMalformedOrNoRegularLanguage) {
  for (const char* pattern : {"(", "a)", "[", "[b-a]", "*", "a{2,1}", "a{5000}", R"(\x{110000})",
                              "\xff", R"(\)", "(?i"}) {
    try {
      Regex::compile(pattern);
      FAIL() << pattern;
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::kBadFile || error.kind() == ErrorKind::kUnsupported);
    }
  }
  for (const char* pattern :
       {R"((a)\1)", "(?<=ab)c", "(?>a|ab)c", "(?:ab)++", R"(\p{Klingon})", R"(\G)", "(?#x)"}) {
    try {
      Regex::compile(pattern);
      FAIL() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported) << error.what();
    }
  }
}

TEST(Regex, RefusesTablesThatExplode) {
  EXPECT_THROW(Regex::compile("(a|b){20}a"), Error);
  EXPECT_THROW(Regex::compile("((a{100}){100}){100}"), Error);
  EXPECT_THROW(Regex::compile(std::string(100, '(') + "a" + std::string(100, ')')), Error);
}

}  // namespace
}  // namespace lemma::text::regex
