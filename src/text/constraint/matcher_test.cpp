// SPDX-License-Identifier: Apache-2.0
// Masks and beginnings, on small vocabularies whose every token is known.
#include "text/constraint/matcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "text/constraint/accepts.hpp"
#include "text/constraint/program_cache.hpp"
#include "text/sample_vocabulary.hpp"

namespace lemma::text::constraint {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

/// A vocabulary of pieces in GPT-2's alphabet; "<end>" ends, "<unused>" is a control token.
std::shared_ptr<const Tokenizer> vocabulary(const std::vector<std::string>& pieces) {
  sample::Builder builder;
  for (const std::string& piece : pieces) {
    std::string spelling;
    for (const char c : piece) spelling += sample::gpt2_spelling(static_cast<unsigned char>(c));
    builder.add(spelling);
  }
  const TokenId end = builder.add("<end>", TokenKind::kControl);
  builder.add("<unused>", TokenKind::kControl);
  builder.add("</think>", TokenKind::kControl);
  weights::Metadata metadata = builder.metadata("gpt2");
  metadata.add("tokenizer.ggml.pre", {std::string("gpt-2"), "string"});
  sample::set_id(metadata, "eos", end);
  return Tokenizer::from_metadata(metadata);
}

std::vector<std::string> allowed(Matcher& matcher, const Tokenizer& tokenizer) {
  std::vector<std::uint8_t> flags(tokenizer.vocabulary_size() + 3, 7);
  matcher.mask(flags);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    EXPECT_LE(flags[i], 1);
    if (flags[i] == 0) continue;
    EXPECT_LT(i, tokenizer.vocabulary_size());
    texts.push_back(tokenizer.piece(static_cast<TokenId>(i), true));
  }
  return texts;
}

TokenId id(const Tokenizer& tokenizer, const std::string& text) {
  for (std::size_t i = 0; i < tokenizer.vocabulary_size(); ++i) {
    if (tokenizer.piece(static_cast<TokenId>(i), true) == text) return static_cast<TokenId>(i);
  }
  ADD_FAILURE() << "no token " << text;
  return 0;
}

std::unique_ptr<Matcher> matcher(const std::shared_ptr<const Tokenizer>& tokenizer,
                                 Constraint constraint) {
  return ProgramCache(tokenizer).matcher(constraint);
}

TEST(Mask, AllowsWhatTheGrammarCanGoOnWith) {
  const auto words = vocabulary({"a", "b", "ab", "abc", "\xc3", "ba"});
  const auto m = matcher(words, Constraint::grammar("root ::= \"ab\""));
  EXPECT_THAT(allowed(*m, *words), UnorderedElementsAre("a", "ab"));
  ASSERT_TRUE(m->take(id(*words, "a")));
  EXPECT_THAT(allowed(*m, *words), UnorderedElementsAre("b"));
  EXPECT_FALSE(m->finished());
  ASSERT_TRUE(m->take(id(*words, "b")));
  EXPECT_THAT(allowed(*m, *words), UnorderedElementsAre("<end>"));
  EXPECT_TRUE(m->finished());
}

TEST(Mask, RefusesEveryOtherTokenWithoutLosingItsPlace) {
  const auto words = vocabulary({"a", "b", "ab", "abc", "\xc3"});
  const auto m = matcher(words, Constraint::grammar("root ::= \"ab\""));
  for (const char* forced : {"abc", "b", "\xc3", "<end>", "<unused>"}) {
    EXPECT_FALSE(m->fits(id(*words, forced))) << forced;
    EXPECT_FALSE(m->take(id(*words, forced))) << forced;
  }
  EXPECT_TRUE(m->take(id(*words, "ab")));
  EXPECT_TRUE(m->take(id(*words, "<end>")));
}

TEST(Mask, AllowsTheEndWhereTheTextMayEndAndGoOn) {
  const auto words = vocabulary({"a", "aa"});
  const auto m = matcher(words, Constraint::grammar("root ::= \"a\"*"));
  EXPECT_THAT(allowed(*m, *words), UnorderedElementsAre("a", "aa", "<end>"));
  EXPECT_FALSE(m->finished());
}

TEST(Mask, LetsTokensEndInsideACharacter) {
  const auto words = vocabulary({"\xc3", "\xa9", "\xc3\xa9", "\xa9x", "x", "\xc4"});
  const auto m = matcher(words, Constraint::grammar("root ::= \"\u00e9x\""));
  EXPECT_THAT(allowed(*m, *words), UnorderedElementsAre("\xc3", "\xc3\xa9"));
  ASSERT_TRUE(m->take(id(*words, "\xc3")));
  EXPECT_THAT(allowed(*m, *words), UnorderedElementsAre("\xa9", "\xa9x"));
}

TEST(Mask, SaysThatNothingIsAllowed) {
  const auto words = vocabulary({"a", "b"});
  const auto m = matcher(words, Constraint::grammar("root ::= \"ac\""));
  ASSERT_TRUE(m->take(id(*words, "a")));
  std::vector<std::uint8_t> flags(words->vocabulary_size());
  EXPECT_FALSE(m->mask(flags));
}

TEST(Mask, AllowsTwoTokensOfTheSameText) {
  // A byte token and a piece.
  sample::Builder builder = sample::sentencepiece_builder();
  weights::Metadata metadata = builder.metadata("llama");
  sample::set_id(metadata, "eos", 2);
  const std::shared_ptr<const Tokenizer> words = Tokenizer::from_metadata(metadata);
  const auto m = matcher(words, Constraint::grammar("root ::= \"a\""));
  EXPECT_THAT(allowed(*m, *words), ElementsAre("a", "a"));
}

/// The definition: a token is allowed if the automaton takes its bytes.
void expect_plain_masks(const Grammar& grammar, const std::shared_ptr<const Tokenizer>& words,
                        std::uint64_t seed) {
  Acceptor plain{grammar};
  const auto trie = std::make_shared<const TokenTrie>(*words);
  const auto program = std::make_shared<const Program>(grammar, trie);
  std::mt19937_64 random(seed);
  for (int text = 0; text < 8; ++text) {
    Matcher m(program, words);
    std::string so_far;
    for (int step = 0; step < 30; ++step) {
      std::vector<std::uint8_t> flags(words->vocabulary_size());
      m.mask(flags);
      std::vector<TokenId> choices;
      for (std::size_t i = 0; i < flags.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        const std::string bytes(trie->text(token));
        const bool expected =
            trie->is_end(token)
                ? plain.whole(so_far)
                : !bytes.empty() && plain.prefix(so_far + bytes) == so_far.size() + bytes.size();
        ASSERT_EQ(flags[i] != 0, expected) << "'" << so_far << "' + '" << bytes << "'";
        if (expected && !bytes.empty()) choices.push_back(token);
      }
      if (choices.empty()) break;
      const TokenId next = choices[random() % choices.size()];
      ASSERT_TRUE(m.take(next));
      so_far += trie->text(next);
    }
  }
}

TEST(Mask, AgreesWithTheAutomatonTokenByToken) {
  // Strings of up to 40 bytes over few letters, so that counts clamp and long tokens are tried.
  std::vector<std::string> pieces = {"\"", "a", "b", "1", ",",    "[",   "]",
                                     "{",  "}", ":", " ", "\xc3", "\xa9"};
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string piece;
    const std::size_t length = i % 10 == 0 ? 20 + random() % 25 : 2 + random() % 4;
    const std::string letters = i % 10 == 0 ? "ab1" : "\"\"ab1,,[]{}: ";
    while (piece.size() < length) piece += letters[random() % letters.size()];
    pieces.push_back(piece);
  }
  std::sort(pieces.begin(), pieces.end());
  pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
  const auto words = vocabulary(pieces);
  std::uint64_t seed = 1;
  for (
      const char* text :
      {"{}", R"({"type": "array", "items": {"type": "string", "maxLength": 45}, "minItems": 2})",
       R"({"additionalProperties": {"type": "string", "minLength": 38, "maxLength": 90}})",
       R"({"anyOf": [{"type": "string", "pattern": "^a*b"}, {"type": "array", "items": {"$ref": "#"}, "maxItems": 70}]})"}) {
    SCOPED_TRACE(text);
    expect_plain_masks(schema_grammar(text), words, seed++);
  }
  for (const char* text :
       {"root ::= [ab1]{0,100} \"]\" root?",
        "root ::= \"a\" root \"b\" | (\"1\" | \"11\"){3,50} | root2\nroot2 ::= \"[\" root \"]\"",
        "root ::= ([ab]{1,60} \",\"){1,60} \"1\"{33} \"b\"?"}) {
    SCOPED_TRACE(text);
    expect_plain_masks(parse_gbnf(text), words, seed++);
  }
}

TEST(Beginning, WaitsForTheEndOfTheReasoning) {
  const auto words = vocabulary({"a", "b", "c", "\n", " "});
  Constraint constraint = Constraint::grammar("root ::= \"ab\"");
  constraint.after = "</think>";
  const auto m = matcher(words, constraint);
  // All but the end, for the text must come.
  EXPECT_THAT(allowed(*m, *words),
              UnorderedElementsAre("a", "b", "c", "\n", " ", "<unused>", "</think>"));
  for (const char* free : {"c", "b", "<unused>", "a"}) ASSERT_TRUE(m->take(id(*words, free)));
  EXPECT_FALSE(m->take(id(*words, "<end>")));
  EXPECT_TRUE(m->is_free());
  ASSERT_TRUE(m->take(id(*words, "</think>")));
  EXPECT_FALSE(m->is_free());
  EXPECT_THAT(allowed(*m, *words), UnorderedElementsAre("a", "\n", " "));
  for (const char* next : {"\n", "\n", "a", "b"}) ASSERT_TRUE(m->take(id(*words, next)));
  EXPECT_TRUE(m->finished());
}

TEST(Beginning, FindsAMarkerThatTokensCutAnywhere) {
  const auto words = vocabulary({"x<", "/en", "d>", "d>ab", "d>c", "a", "b", "</e"});
  Constraint constraint = Constraint::grammar("root ::= \"ab\"");
  constraint.after = "</end>";
  const auto m = matcher(words, constraint);
  ASSERT_TRUE(m->take(id(*words, "x<")));
  ASSERT_TRUE(m->take(id(*words, "/en")));
  // Let through by the mask, refused as soon as it is looked at.
  EXPECT_FALSE(m->fits(id(*words, "d>c")));
  EXPECT_FALSE(m->take(id(*words, "d>c")));
  ASSERT_TRUE(m->take(id(*words, "d>ab")));
  EXPECT_TRUE(m->finished());
}

TEST(Beginning, IgnoresWhatStandsBeforeATriggerInItsToken) {
  const auto words = vocabulary({"x<tool_call>{", "{", "}", "y", "x<tool_call>}", "<tool"});
  Constraint constraint = Constraint::grammar("root ::= \"<tool_call>\" \"{}\"");
  constraint.triggers = {"<function>", "<tool_call>"};
  const auto m = matcher(words, constraint);
  EXPECT_TRUE(m->may_end());
  ASSERT_TRUE(m->take(id(*words, "y")));
  ASSERT_TRUE(m->take(id(*words, "<tool")));
  ASSERT_TRUE(m->take(id(*words, "y")));
  EXPECT_FALSE(m->take(id(*words, "x<tool_call>}")));
  EXPECT_TRUE(m->is_free());
  ASSERT_TRUE(m->take(id(*words, "x<tool_call>{")));
  EXPECT_FALSE(m->is_free());
  EXPECT_THAT(allowed(*m, *words), ElementsAre("}"));
  ASSERT_TRUE(m->take(id(*words, "}")));
  EXPECT_TRUE(m->finished());
}

TEST(Beginning, LooksForTriggersBehindTheReasoning) {
  const auto words = vocabulary({"!", "a", "z"});
  Constraint constraint = Constraint::grammar("root ::= \"!a\"");
  constraint.after = "</think>";
  constraint.triggers = {"!"};
  const auto m = matcher(words, constraint);
  for (const char* free : {"!", "z", "</think>", "z"}) ASSERT_TRUE(m->take(id(*words, free)));
  EXPECT_TRUE(m->is_free());
  EXPECT_TRUE(m->may_end());
  ASSERT_TRUE(m->take(id(*words, "!")));
  EXPECT_FALSE(m->is_free());
  EXPECT_FALSE(m->take(id(*words, "z")));
}

TEST(Program, KeepsThePlacesOfAllItsTextsWhenItForgets) {
  const auto words = vocabulary({"a", "b", "(", ")"});
  const Grammar grammar = parse_gbnf("root ::= \"(\" root \")\" root | [ab]{0,1000000}");
  const auto program =
      std::make_shared<const Program>(grammar, std::make_shared<const TokenTrie>(*words));
  Matcher still(program, words);
  ASSERT_TRUE(still.take(std::string_view("((a")));
  Matcher busy(program, words);
  std::vector<std::uint8_t> flags(words->vocabulary_size());
  std::size_t most = 0;
  for (int i = 0; i < 60000; ++i) {
    ASSERT_TRUE(busy.take(id(*words, i % 3 == 0 ? "a" : "b")));
    busy.mask(flags);
    if (i % 1000 == 0) most = std::max(most, program->bytes());
  }
  EXPECT_LT(most, MaskMaker::kMostStoreBytes + 3 * MaskMaker::kMostMaskBytes);
  EXPECT_TRUE(still.take(std::string_view("b))")));
  EXPECT_FALSE(still.take(std::string_view(")")));
  EXPECT_TRUE(still.may_end());
}

TEST(Program, ServesTextsOnManyThreads) {
  const auto words = vocabulary({"{", "}", "\"", "a", ":", ",", "1", "[", "]"});
  ProgramCache cache(words);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto m = cache.matcher(Constraint::json_object());
      std::mt19937_64 random(static_cast<std::uint64_t>(t));
      TokenBits bits;
      for (int i = 0; i < 300; ++i) {
        if (!m->mask(bits)) break;
        std::vector<TokenId> choices;
        for (std::size_t k = 0; k < words->vocabulary_size(); ++k) {
          if ((bits[k / 64] >> (k % 64) & 1) != 0) choices.push_back(static_cast<TokenId>(k));
        }
        EXPECT_TRUE(m->take(choices[random() % choices.size()]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.size(), 1u);
}

TEST(ProgramCache, KeepsTheLatestOnly) {
  ProgramCache cache(vocabulary({"a"}));
  const auto grammar = [](int n) {
    return Constraint::grammar("root ::= \"" + std::to_string(n) + "\"");
  };
  const auto first = cache.get(grammar(0));
  EXPECT_EQ(cache.get(grammar(0)), first);
  for (int i = 1; i < 100; ++i) cache.get(grammar(i));
  EXPECT_EQ(cache.size(), ProgramCache::kMostPrograms);
  EXPECT_NE(cache.get(grammar(0)), first);
}

TEST(ProgramCache, TellsConstraintsApartByAllThatMatters) {
  ProgramCache cache(vocabulary({"a"}));
  Constraint plain = Constraint::json_object();
  Constraint compact = plain;
  compact.compact = true;
  Constraint later = plain;
  later.after = "x";
  EXPECT_NE(cache.get(plain), cache.get(compact));
  EXPECT_NE(cache.get(plain), cache.get(later));
  Constraint other = later;
  other.after = "y";  // the same program at another place
  EXPECT_EQ(cache.get(other), cache.get(later));
}

}  // namespace
}  // namespace lemma::text::constraint
