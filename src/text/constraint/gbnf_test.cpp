// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/gbnf.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/constraint/accepts.hpp"

namespace lemma::text::constraint {
namespace {

using ::testing::HasSubstr;

std::string grammar_refusal(std::string_view text) {
  return refusal([&] { Automaton::compile(parse_gbnf(text)); });
}

TEST(Gbnf, ReadsLiteralsAndTheirEscapes) {
  Acceptor a = gbnf(R"(root ::= "a\n\t\"\\\x41\u00e9\U0001F600")");
  EXPECT_TRUE(a.whole("a\n\t\"\\A\u00e9\U0001F600"));
  EXPECT_TRUE(a.open("a\n\t\"\\A\xc3"));
}

TEST(Gbnf, ReadsClassesRangesAndTheirNegation) {
  Acceptor a = gbnf(R"(root ::= [a-cx\]\-] [^0-9\n] .)");
  EXPECT_TRUE(a.whole("bz!"));
  EXPECT_TRUE(a.whole("]\u4e16\n"));
  EXPECT_TRUE(a.whole("-\u00e9\U0001F600"));
  EXPECT_EQ(a.prefix("dz!"), 0u);
  EXPECT_EQ(a.prefix("b5!"), 1u);
}

TEST(Gbnf, KeepsToWholeCharacters) {
  Acceptor a = gbnf("root ::= [\u00e9-\u4e16]+");
  EXPECT_TRUE(a.whole("\u00e9\u0800\u4e16"));
  EXPECT_EQ(a.prefix("\xc3\x41"), 1u);                       // half a character
  EXPECT_EQ(a.prefix("\xe4\xb8\x97"), 2u);                   // U+4E17 is one too far
  EXPECT_EQ(a.prefix("\xed\xa0\x80"), 0u);                   // nothing below U+D7FF begins so here
  EXPECT_EQ(gbnf("root ::= .").prefix("\xed\xa0\x80"), 1u);  // surrogates are no characters
}

TEST(Gbnf, RepeatsAsOftenAsItSays) {
  Acceptor a = gbnf(R"(root ::= "a"{2} "b"{1,3} "c"{2,} "d"* "e"+ "f"?)");
  EXPECT_TRUE(a.whole("aabccef"));
  EXPECT_TRUE(a.whole("aabbbcccccdddee"));
  EXPECT_EQ(a.prefix("aabbbb"), 5u);
  EXPECT_EQ(a.prefix("aabcd"), 4u);
}

TEST(Gbnf, CountsLargeRepeatsWithoutWritingThemOut) {
  Acceptor a = gbnf(R"(root ::= ("ab" | "c"){3,1000000000} "!" [0-9]{1000,1000})");
  EXPECT_LT(a.automaton().states.size(), 100u);
  EXPECT_EQ(a.prefix("abc!"), 3u);
  EXPECT_TRUE(a.open("abcab!"));
  std::string text = "ccc!" + std::string(999, '7');
  EXPECT_TRUE(a.open(text));
  EXPECT_TRUE(a.whole(text + "7"));
  EXPECT_EQ(a.prefix(text + "77"), text.size() + 1);
}

TEST(Gbnf, CountsNestedAndEmptyRepeats) {
  Acceptor a = gbnf(R"(root ::= ("x"{30,40} ","){2,50} ("y"?){100} "z"*{5,9})");
  const std::string x = std::string(30, 'x') + ",";
  EXPECT_TRUE(a.whole(x + x));
  EXPECT_TRUE(a.whole(x + x + std::string(100, 'y') + "zzzzzzzzzzzzzz"));
  EXPECT_EQ(a.prefix(x + x + std::string(101, 'y')), 2 * x.size() + 100);
  EXPECT_TRUE(a.open(x));
}

TEST(Gbnf, FollowsAmbiguousRepeatsInBoundedSpace) {
  Acceptor a = gbnf(R"(root ::= ("a"{1,1000}){1,1000} "a"{0,5000} "b")");
  EXPECT_TRUE(a.whole(std::string(3000, 'a') + "b"));
  EXPECT_LT(a.store().bytes(), StateStore::kMostBytes);
}

TEST(Gbnf, GroupsChoicesAndGoesOnOverLines) {
  Acceptor a = gbnf(
      "# a comment\n"
      "root ::= (\n  \"a\"   # inside a group\n  | \"b\"\n) tail\n"
      "tail ::= \"1\" |\n  \"2\"\n  | \"3\"\n\r\n");
  for (const char* text : {"a1", "b2", "a3"}) EXPECT_TRUE(a.whole(text)) << text;
  EXPECT_FALSE(a.whole("ab"));
}

TEST(Gbnf, RecursesInTheMiddleAndAtTheEnd) {
  Acceptor a = gbnf("root ::= \"(\" root \")\" | list\nlist ::= \"x\" (\",\" list)?");
  const std::string open(300, '(');
  EXPECT_TRUE(a.whole(open + "x,x" + std::string(300, ')')));
  EXPECT_TRUE(a.open(open + "x"));
  // A rule that ends in itself needs no stack.
  std::string list = "x";
  for (int i = 0; i < 5000; ++i) list += ",x";
  EXPECT_TRUE(a.whole(list));
}

TEST(Gbnf, EndsNestingAtItsDeepest) {
  Acceptor a = gbnf("root ::= \"(\" root \")\" | \"x\"");
  const std::size_t deepest = a.prefix(std::string(5000, '('));
  EXPECT_GE(deepest, 500u);
  EXPECT_LE(deepest, StateStore::kMostDepth);
}

TEST(Gbnf, ReadsARuleOfArithmetic) {
  Acceptor a = gbnf(
      "root ::= (expr \"=\" ws num \"\\n\")+\n"
      "expr ::= term ([-+*/] term)*\n"
      "term ::= num | \"(\" ws expr \")\" ws\n"
      "num ::= [0-9]+ ws\n"
      "ws ::= [ \\t\\n]*\n");
  EXPECT_TRUE(a.whole("(1 +2)*3 = 9\n7=7\n"));
  EXPECT_EQ(a.prefix("(1 + ) = 3\n"), 4u);
}

TEST(Gbnf, RefusesLeftRecursionByName) {
  EXPECT_THAT(grammar_refusal("root ::= sum\nsum ::= sum \"+\" [0-9] | [0-9]"),
              HasSubstr("rule 'sum' is left-recursive"));
  EXPECT_THAT(grammar_refusal("root ::= a\na ::= \"x\"? b\nb ::= a \"y\" | \"z\""),
              HasSubstr("(a -> b -> a)"));
}

TEST(Gbnf, RefusesAGrammarWithoutAnyText) {
  EXPECT_THAT(grammar_refusal("root ::= \"a\" root"), HasSubstr("'root' has no text at all"));
  EXPECT_THAT(grammar_refusal("root ::= []"), HasSubstr("no text at all"));
}

TEST(Gbnf, TakesTheEmptyText) {
  Acceptor a = gbnf("root ::= \"\" | \"a\"?");
  EXPECT_TRUE(a.whole(""));
  EXPECT_TRUE(a.whole("a"));
}

struct Fault {
  const char* text;
  const char* message;
};

TEST(Gbnf, NamesLineAndColumnOfAFault) {
  const Fault faults[] = {
      {"root ::= \"a", "line 1, column 12: a literal has no closing '\"'"},
      {"root ::= [a-", "line 1, column 13: a class has no closing ']'"},
      {"root ::= \"\u00e9\" ?? )", "line 1, column 17: expected the end of rule 'root', found ')'"},
      {"root ::= a\n", "line 1, column 10: rule 'a' is used but not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule 'root' is defined twice"},
      {"start ::= \"a\"", "no rule 'root'"},
      {"root := \"a\"", "line 1, column 6: expected '::='"},
      {"root ::= \"\\q\"", "line 1, column 12: unknown escape"},
      {"root ::= \"\\ud800\"", "names no character"},
      {"root ::= \"\\x4\"", "expected 2 hexadecimal digits"},
      {"root ::= [z-a]", "line 1, column 11: a range's end comes before its beginning"},
      {"root ::= * \"a\"", "line 1, column 10: nothing stands before '*'"},
      {"root ::= \"a\"{3,2}", "line 1, column 14: the least number of repeats is larger"},
      {"root ::= \"a\"{9999999999}", "more than 1000000000 repeats"},
      {"root ::= \"a\"{x}", "expected a number of repeats, found 'x'"},
      {"root ::= (\"a\"", "expected ')', found the end of the grammar"},
      {"root ::= \"a\" = \"b\"", "expected the end of rule 'root', found '='"},
      {"\xff", "line 1, column 1: the text is not UTF-8"},
      {"", "no rule 'root'"},
  };
  for (const Fault& fault : faults)
    EXPECT_THAT(grammar_refusal(fault.text), HasSubstr(fault.message)) << fault.text;
  EXPECT_THAT(grammar_refusal("root ::= " + std::string(300, '(') + "\"a\""),
              HasSubstr("nested deeper than 200"));
}

TEST(Gbnf, BoundsWhatAHostileGrammarCosts) {
  // 2^20 states if made deterministic; the rule then stays as it is written.
  std::string exponential = "root ::= [ab]* \"a\"";
  for (int i = 0; i < 20; ++i) exponential += " [ab]";
  Acceptor a = gbnf(exponential);
  EXPECT_LT(a.automaton().states.size(), 100000u);
  EXPECT_TRUE(a.whole("bba" + std::string(20, 'b')));
  EXPECT_FALSE(a.whole("bbb" + std::string(20, 'b')));

  std::string huge = "root ::=";
  for (int i = 0; i < 30000; ++i) huge += " \"" + std::string(50, 'a') + "\"";
  EXPECT_THAT(grammar_refusal(huge), HasSubstr("the grammar is too large"));
}

}  // namespace
}  // namespace lemma::text::constraint
