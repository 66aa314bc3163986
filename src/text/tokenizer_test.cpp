// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "lemma/error.hpp"
#include "test_data.hpp"
#include "text/pretokenizer.hpp"
#include "text/sample_vocabulary.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

TokenId id_of(const Tokenizer& tokenizer, std::string_view text) {
  const std::optional<TokenId> id = tokenizer.find(text);
  EXPECT_TRUE(id) << text;
  return id.value_or(-1);
}

Ids plain(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false});
}

/// A copy of `source` in which `key` has `value`, or is absent without one.
weights::Metadata with(const weights::Metadata& source, const std::string& key,
                       std::optional<weights::Value> value) {
  weights::Metadata result;
  for (const auto& [name, old] : source.pairs()) {
    if (name != key) result.add(name, old);
  }
  if (value) result.add(key, *value);
  return result;
}

void expect_refused(const weights::Metadata& metadata, ErrorKind kind, const std::string& names) {
  try {
    Tokenizer::from_metadata(metadata);
    FAIL() << "accepted; expected a refusal that names " << names;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(names));
  }
}

TEST(SentencePieceTokenizer, MergesTheBestScoreFirstThenTheLeftmost) {
  const auto t = Tokenizer::from_metadata(sample::sentencepiece());
  EXPECT_THAT(plain(*t, "abc"), ElementsAre(id_of(*t, "\u2581ab"), id_of(*t, "c")));
  EXPECT_THAT(plain(*t, "caaa"),
              ElementsAre(id_of(*t, "\u2581"), id_of(*t, "c"), id_of(*t, "aa"), id_of(*t, "a")));
}

TEST(SentencePieceTokenizer, SpellsCharactersWithoutAPieceInBytes) {
  const auto t = Tokenizer::from_metadata(sample::sentencepiece());
  EXPECT_THAT(plain(*t, "\U0001f999"),
              ElementsAre(id_of(*t, "\u2581"), id_of(*t, "<0xF0>"), id_of(*t, "<0x9F>"),
                          id_of(*t, "<0xA6>"), id_of(*t, "<0x99>")));
  EXPECT_EQ(t->decode(plain(*t, "\U0001f999")), "\U0001f999");
}

TEST(SentencePieceTokenizer, UsesTheUnknownTokenWhereAByteTokenIsMissing) {
  sample::Builder b = sample::sentencepiece_builder();
  b.kinds[3 + 0xf0] = static_cast<int>(TokenKind::kNormal);
  const auto t = Tokenizer::from_metadata(b.metadata("llama"));
  EXPECT_THAT(plain(*t, "\U0001f999"), ElementsAre(id_of(*t, "\u2581"), 0));
}

TEST(SentencePieceTokenizer, PutsABlankInFrontAtTheStartAndBehindSpecialTokens) {
  const auto t = Tokenizer::from_metadata(sample::sentencepiece());
  const TokenId user = id_of(*t, "<|user|>"), blank_a = id_of(*t, "\u2581a");
  EXPECT_THAT(t->encode("a<|user|>a", {.parse_special = true}),
              ElementsAre(1, blank_a, user, blank_a));
  EXPECT_THAT(plain(*t, ""), ElementsAre());
}

TEST(SentencePieceTokenizer, FollowsTheFlagOrItsOverrideOnTheBlankInFront) {
  const auto metadata = with(sample::sentencepiece(), "tokenizer.ggml.add_space_prefix",
                             weights::Value{false, "bool"});
  const auto off = Tokenizer::from_metadata(metadata);
  EXPECT_THAT(plain(*off, "a"), ElementsAre(id_of(*off, "a")));
  EXPECT_EQ(off->decode(plain(*off, " a")), " a");
  const auto on = Tokenizer::from_metadata(metadata, {.add_space_prefix = true});
  EXPECT_THAT(plain(*on, "a"), ElementsAre(id_of(*on, "\u2581a")));
}

TEST(SentencePieceTokenizer, DropsOneBlankAtTheStartOfATextOnly) {
  const auto t = Tokenizer::from_metadata(sample::sentencepiece());
  const Ids ids = t->encode(" a");
  EXPECT_EQ(t->decode(ids), " a");
  EXPECT_EQ(t->decode(ids, {.at_text_start = false}), "  a");
  EXPECT_EQ(t->decode(ids, {.show_special = true}), "<s>  a");
}

TEST(SentencePieceTokenizer, NeverTurnsTextIntoAControlToken) {
  const auto t = Tokenizer::from_metadata(sample::sentencepiece());
  for (const std::string text : {"<s>", "a<s>b</s>", "<unk>", "<|user|>", "<0x41>"}) {
    const Ids ids = plain(*t, text);
    EXPECT_EQ(t->decode(ids), text);
    for (const TokenId id : ids) {
      EXPECT_NE(t->kind(id), TokenKind::kControl) << text;
      EXPECT_NE(t->kind(id), TokenKind::kUnknown) << text;
    }
  }
}

TEST(Tokenizer, MatchesUserDefinedTokensInAnyTextAndControlTokensOnRequest) {
  const auto t = Tokenizer::from_metadata(sample::byte_level("gpt-2"));
  const TokenId tool = id_of(*t, "<|tool|>"), end = id_of(*t, "<|end|>");
  const Ids without = plain(*t, "<|end|><|tool|>");
  EXPECT_EQ(without.size(), 8u);
  EXPECT_EQ(without.back(), tool);
  EXPECT_THAT(t->encode("<|end|><|tool|>", {.parse_special = true}), ElementsAre(end, tool));
  EXPECT_EQ(t->piece(tool), "<|tool|>");
  EXPECT_EQ(t->piece(end), "");
  EXPECT_EQ(t->piece(end, true), "<|end|>");
}

TEST(Tokenizer, AddsBosAndEosAsTheMetadataSays) {
  const auto both = Tokenizer::from_metadata(
      with(sample::sentencepiece(), "tokenizer.ggml.add_eos_token", weights::Value{true, "bool"}));
  EXPECT_THAT(both->encode(""), ElementsAre(1, 2));
  EXPECT_THAT(both->encode("", {.add_special = false}), ElementsAre());
  const auto none = Tokenizer::from_metadata(
      with(sample::sentencepiece(), "tokenizer.ggml.add_bos_token", weights::Value{false, "bool"}));
  EXPECT_THAT(none->encode(""), ElementsAre());
}

TEST(Tokenizer, DefaultsToBosForSentencePieceAndLlama3Only) {
  EXPECT_TRUE(Tokenizer::from_metadata(sample::sentencepiece())->adds_bos());
  for (const auto& [pre, adds] :
       {std::pair{"llama-bpe", true}, {"gpt-2", false}, {"qwen2", false}}) {
    weights::Metadata metadata = sample::byte_level(pre);
    sample::set_id(metadata, "bos", 300);
    EXPECT_THROW(Tokenizer::from_metadata(metadata), Error) << "300 is outside the vocabulary";
    metadata = sample::byte_level(pre);
    sample::set_id(metadata, "bos", 0);
    EXPECT_EQ(Tokenizer::from_metadata(metadata)->adds_bos(), adds) << pre;
  }
}

TEST(Tokenizer, ReportsABosThatWasTypedOnTopOfTheAddedOne) {
  const auto t = Tokenizer::from_metadata(sample::sentencepiece());
  EXPECT_FALSE(t->starts_with_two_bos(t->encode("<s>a")));
  EXPECT_FALSE(t->starts_with_two_bos(t->encode("a", {.parse_special = true})));
  std::string warned;
  base::set_log_sink([&](base::LogLevel, std::string_view message) { warned = message; });
  EXPECT_TRUE(t->starts_with_two_bos(t->encode("<s>a", {.parse_special = true})));
  EXPECT_THAT(warned, HasSubstr("'<s>'"));
  warned.clear();
  // What a template wrote is taken as it is: no BOS is added to it, so none is doubled.
  EXPECT_FALSE(
      t->starts_with_two_bos(t->encode("<s>a", {.add_special = false, .parse_special = true})));
  EXPECT_EQ(warned, "");
  base::set_log_sink({});
}

TEST(Tokenizer, WarnsWhereTheFileNamesNoPreTokenizer) {
  std::string warned;
  base::set_log_sink([&](base::LogLevel, std::string_view message) { warned = message; });
  const auto t = Tokenizer::from_metadata(sample::byte_level_builder().metadata("gpt2"));
  base::set_log_sink({});
  EXPECT_THAT(warned, HasSubstr("tokenizer.ggml.pre"));
  // The default rule keeps punctuation apart from a blank in front of it.
  EXPECT_THAT(plain(*t, " ."), ElementsAre(' ', '.'));
}

TEST(Tokenizer, EndsGenerationOnTheNamedIdAndOnWellKnownSpellings) {
  weights::Metadata metadata = sample::byte_level("llama-bpe");
  const auto named = Tokenizer::from_metadata(metadata);
  const TokenId end = id_of(*named, "<|end|>"), text_end = id_of(*named, "<|endoftext|>"),
                turn = id_of(*named, "<|eot_id|>");
  sample::set_id(metadata, "eos", id_of(*named, "<|tool|>"));
  const auto t = Tokenizer::from_metadata(metadata);
  EXPECT_THAT(Ids(t->end_of_generation().begin(), t->end_of_generation().end()),
              ElementsAre(end, text_end, turn, id_of(*t, "<|tool|>")));
  EXPECT_TRUE(t->is_end_of_generation(turn));
  EXPECT_FALSE(t->is_end_of_generation(0));
  EXPECT_EQ(t->special().eot, turn);
}

TEST(Tokenizer, TreatsATurnEndStoredAsTextAsControl) {
  sample::Builder b = sample::byte_level_builder();
  const TokenId end = b.add("<|im_end|>", TokenKind::kUserDefined);
  weights::Metadata metadata = b.metadata("gpt2");
  const auto t = Tokenizer::from_metadata(metadata);
  EXPECT_TRUE(t->is_control(end));
  EXPECT_TRUE(t->is_end_of_generation(end));
  EXPECT_THAT(plain(*t, "<|im_end|>"), testing::Not(testing::Contains(end)));
}

TEST(Tokenizer, LeavesAnHtmlStrikeOutAloneWhereTextHasBothTags) {
  sample::Builder b = sample::byte_level_builder();
  b.add("<s>", TokenKind::kUserDefined);
  const TokenId closing = b.add("</s>", TokenKind::kUserDefined);
  const auto t = Tokenizer::from_metadata(b.metadata("gpt2"));
  EXPECT_FALSE(t->is_end_of_generation(closing));
  EXPECT_THAT(plain(*t, "</s>"), ElementsAre(closing));
}

TEST(Tokenizer, DoesNotEndAHarmonyTurnOnItsMessageEnd) {
  sample::Builder b = sample::byte_level_builder();
  b.add("<|return|>", TokenKind::kControl);
  b.add("<|call|>", TokenKind::kControl);
  const auto t = Tokenizer::from_metadata(b.metadata("gpt2"));
  EXPECT_FALSE(t->is_end_of_generation(id_of(*t, "<|end|>")));
  EXPECT_TRUE(t->is_end_of_generation(id_of(*t, "<|return|>")));
}

TEST(ByteLevelTokenizer, MergesByRankAndTakesPartsThatAreNoTokenApart) {
  const auto t = Tokenizer::from_metadata(sample::byte_level("gpt-2"));
  EXPECT_THAT(plain(*t, "abab"), ElementsAre(id_of(*t, "abab")));
  EXPECT_THAT(plain(*t, "bc"), ElementsAre('b', 'c'));
  EXPECT_THAT(plain(*t, "12"), ElementsAre(id_of(*t, "12")));
}

TEST(ByteLevelTokenizer, TakesAWholeWordPastTheMergesForLlama3Only) {
  for (const auto& [pre, whole] :
       {std::pair{"llama-bpe", true}, {"gpt-2", false}, {"qwen2", false}}) {
    const auto t = Tokenizer::from_metadata(sample::byte_level(pre));
    const Ids ids = plain(*t, "xyz");
    EXPECT_EQ(ids == Ids{id_of(*t, "xyz")}, whole) << pre;
    EXPECT_EQ(t->decode(ids), "xyz");
  }
}

TEST(ByteLevelTokenizer, NeverTakesAWholeWordThatIsAControlToken) {
  const auto t = Tokenizer::from_metadata(sample::byte_level("llama-bpe"));
  EXPECT_THAT(plain(*t, "eot"), ElementsAre('e', 'o', 't'));
}

TEST(ByteLevelTokenizer, GivesOneIdForAWordThatLlama3sMergesCannotBuild) {
  LEMMA_TEST_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-llama-bpe.gguf");
  const auto t = Tokenizer::from_metadata(weights::open_checkpoint(path)->metadata());
  EXPECT_THAT(plain(*t, " Vi\u1ec7t"), ElementsAre(101798));
}

TEST(ByteLevelTokenizer, LeavesOutBytesWithoutATokenAloud) {
  sample::Builder b = sample::byte_level_builder();
  b.tokens[0x0b] = "gone";
  const auto t = Tokenizer::from_metadata(b.metadata("gpt2"));
  std::string warned;
  base::set_log_sink([&](base::LogLevel, std::string_view message) { warned = message; });
  EncodeReport report;
  // The same word twice: one that was seen before is counted as well.
  EXPECT_THAT(t->encode("x\x0by x\x0by", {.add_special = false}, &report),
              ElementsAre('x', 'y', ' ', 'x', 'y'));
  EXPECT_EQ(report.dropped, 2u);
  EXPECT_THAT(warned, HasSubstr("2 bytes of the text have no token"));
  warned.clear();
  t->encode("xy", {.add_special = false}, &report);
  EXPECT_EQ(report.dropped, 0u);
  EXPECT_EQ(warned, "");
  base::set_log_sink({});
}

TEST(ByteLevelTokenizer, TakesAnotherPreTokenizerOnRequest) {
  const auto t = Tokenizer::from_metadata(sample::byte_level("gpt-2"), {.pre = "qwen2"});
  EXPECT_THAT(plain(*t, "12"), ElementsAre('1', '2'));
  EXPECT_THROW(Tokenizer::from_metadata(sample::byte_level("gpt-2"), {.pre = "martian"}), Error);
  EXPECT_THROW(Tokenizer::from_metadata(sample::sentencepiece(), {.pre = "qwen2"}), Error);
}

TEST(Gemma4Tokenizer, MergesCharactersByRankAndSpellsBlanks) {
  const auto t = Tokenizer::from_metadata(sample::gemma4());
  EXPECT_TRUE(t->adds_bos());
  EXPECT_THAT(plain(*t, "ab ab"), ElementsAre(id_of(*t, "ab"), id_of(*t, "\u2581ab")));
  EXPECT_THAT(plain(*t, "a\n\nb"), ElementsAre(id_of(*t, "a"), id_of(*t, "\n\n"), id_of(*t, "b")));
  EXPECT_THAT(plain(*t, "\u00e9"), ElementsAre(id_of(*t, "<0xC3>"), id_of(*t, "<0xA9>")));
  EXPECT_EQ(t->decode(plain(*t, " ab \u00e9\n\n")), " ab \u00e9\n\n");
}

TEST(UnigramTokenizer, TakesTheMostProbablePieces) {
  const auto t = Tokenizer::from_metadata(sample::unigram());
  // _a bc costs 2.5 + 3; _ ab c 2 + 2 + 3.
  EXPECT_THAT(plain(*t, "abc"), ElementsAre(id_of(*t, "\u2581a"), id_of(*t, "bc")));
  EXPECT_THAT(t->encode("a"), ElementsAre(id_of(*t, "\u2581a"), id_of(*t, "</s>")));
}

TEST(UnigramTokenizer, SpellsUnknownCharactersInBytesAndLosesNothing) {
  const auto t = Tokenizer::from_metadata(sample::unigram());
  EXPECT_THAT(plain(*t, " a\U0001f999"),
              ElementsAre(id_of(*t, "\u2581"), id_of(*t, "\u2581a"), id_of(*t, "<0xF0>"),
                          id_of(*t, "<0x9F>"), id_of(*t, "<0xA6>"), id_of(*t, "<0x99>")));
  EXPECT_EQ(t->decode(plain(*t, " a\U0001f999")), " a\U0001f999");
}

TEST(UnigramTokenizer, MakesOneUnknownTokenOfARunWithoutByteTokens) {
  sample::Builder b = sample::unigram_builder();
  for (std::int64_t& kind : b.kinds) {
    if (kind == static_cast<int>(TokenKind::kByte)) kind = static_cast<int>(TokenKind::kUnused);
  }
  const auto t = Tokenizer::from_metadata(b.metadata("t5"));
  EXPECT_THAT(plain(*t, "a\u4e16\u754c"), ElementsAre(id_of(*t, "\u2581a"), id_of(*t, "<unk>")));
}

TEST(UnigramTokenizer, MergesBlanksWhereTheFileSaysSo) {
  const auto t = Tokenizer::from_metadata(with(
      sample::unigram(), "tokenizer.ggml.remove_extra_whitespaces", weights::Value{true, "bool"}));
  EXPECT_THAT(plain(*t, "  a   a  "), ElementsAre(id_of(*t, "\u2581a"), id_of(*t, "\u2581a")));
}

TEST(WordPieceTokenizer, TakesTheLongestPiecesOfCleanedWords) {
  const auto t = Tokenizer::from_metadata(sample::wordpiece());
  EXPECT_THAT(t->encode("H\u00e9llo, world"),
              ElementsAre(id_of(*t, "[CLS]"), id_of(*t, "\u2581hel"), id_of(*t, "lo"),
                          id_of(*t, "\u2581,"), id_of(*t, "[UNK]"), id_of(*t, "[SEP]")));
  EXPECT_EQ(t->decode(plain(*t, "hello,hello")), " hello, hello");
}

TEST(TokenizerContract, RefusesUnknownModelsAndPreTokenizersByName) {
  for (const std::string model : {"rwkv", "plamo2", "hybriddna"}) {
    expect_refused(
        with(sample::sentencepiece(), "tokenizer.ggml.model", weights::Value{model, "string"}),
        ErrorKind::kUnsupported, "'" + model + "'");
  }
  expect_refused(sample::byte_level("martian"), ErrorKind::kUnsupported, "'martian'");
  expect_refused(sample::byte_level("martian"), ErrorKind::kUnsupported, "llama-bpe");
}

TEST(TokenizerContract, RefusesArraysOfAWrongTypeOrLength) {
  const weights::Metadata spm = sample::sentencepiece(), bpe = sample::byte_level("gpt-2");
  const std::string scores = "tokenizer.ggml.scores", kinds = "tokenizer.ggml.token_type",
                    merges = "tokenizer.ggml.merges", tokens = "tokenizer.ggml.tokens";
  const std::size_t n = sample::sentencepiece_builder().tokens.size();
  const std::vector<double> few(n - 1, 0.0);
  const std::vector<std::int64_t> ints(n, 1), far(n, 7);
  expect_refused(with(spm, scores, weights::Value{ints, "array of u8"}), ErrorKind::kBadFile,
                 scores);
  expect_refused(with(spm, scores, weights::Value{few, "array of f32"}), ErrorKind::kBadFile,
                 scores);
  expect_refused(with(spm, scores, std::nullopt), ErrorKind::kBadFile, scores);
  expect_refused(with(spm, kinds, weights::Value{few, "array of f32"}), ErrorKind::kBadFile, kinds);
  expect_refused(with(spm, kinds, weights::Value{std::vector<std::int64_t>(n + 1, 1), "array"}),
                 ErrorKind::kBadFile, kinds);
  expect_refused(with(spm, kinds, weights::Value{far, "array of i32"}), ErrorKind::kBadFile, kinds);
  expect_refused(with(bpe, merges, weights::Value{ints, "array of i32"}), ErrorKind::kBadFile,
                 merges);
  expect_refused(with(bpe, merges, std::nullopt), ErrorKind::kBadFile, merges);
  for (const std::string bad : {"ab", "", " ", "a ", "ab "}) {
    expect_refused(with(bpe, merges, weights::Value{std::vector<std::string>{bad}, "array"}),
                   ErrorKind::kBadFile, merges);
  }
  expect_refused(with(spm, tokens, std::nullopt), ErrorKind::kBadFile, tokens);
  expect_refused(with(spm, tokens, weights::Value{std::vector<std::string>{}, "array"}),
                 ErrorKind::kBadFile, tokens);
}

TEST(TokenizerContract, RefusesASpellingOfAbsurdLength) {
  sample::Builder b = sample::byte_level_builder();
  b.add(std::string(70000, 'x'));
  expect_refused(b.metadata("gpt2"), ErrorKind::kBadFile, "70000 bytes");
}

TEST(TokenizerContract, RefusesByteTokensThatSpellNoByte) {
  for (const std::string bad : {"<0x4>", "<0xG1>", "<0x-1>", "A", ""}) {
    sample::Builder b = sample::sentencepiece_builder();
    b.tokens[10] = bad;
    expect_refused(b.metadata("llama"), ErrorKind::kBadFile, "token 10");
  }
}

TEST(TokenizerContract, RefusesIdsOutsideTheVocabularyAndFlagsWithoutAToken) {
  weights::Metadata far = sample::byte_level("gpt-2");
  sample::set_id(far, "eos", 100000);
  expect_refused(far, ErrorKind::kBadFile, "tokenizer.ggml.eos_token_id");
  for (const std::string flag : {"bos", "eos"}) {
    weights::Metadata lacks = sample::byte_level("gpt-2");
    lacks.add("tokenizer.ggml.add_" + flag + "_token", {true, "bool"});
    expect_refused(lacks, ErrorKind::kBadFile, "tokenizer.ggml." + flag + "_token_id");
  }
  const auto t = Tokenizer::from_metadata(sample::sentencepiece());
  EXPECT_THROW(t->piece(-1), Error);
  EXPECT_THROW(t->kind(static_cast<TokenId>(t->vocabulary_size())), Error);
  EXPECT_THROW(t->decode(Ids{100000}), Error);
}

/// Runs `work` on a thread with a stack of 512 KiB.
void on_small_stack(std::function<void()> work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, std::size_t{512} << 10), 0);
  pthread_t thread;
  const auto body = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

std::string repeat(std::string_view unit, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += unit;
  return text;
}

/// Long runs of one kind of character: no crash on a small stack, nothing lost, and work that grows
/// with the length and not with its square.
void expect_linear(const Tokenizer& t, bool lossless = true) {
  const std::pair<const char*, std::size_t> runs[] = {
      {"Z", 131072},      {".", 131072},           {" ", 131072},
      {"\n", 131072},     {"\u4e16", 60000},       {"1", 131072},
      {"us", 40000},      {" \n", 65536},          {"a", 131072},
      {"'", 131072},      {"\xff", 131072},        {"\U0001f999", 32768},
      {"e\u0301", 40000}, {"\u0301\u0323", 30000}, {"aB1 .\n\u4e16", 12000},
      {"\r\n \t", 32768}};
  for (const auto& [unit, times] : runs) {
    std::size_t steps[3] = {};
    for (const std::size_t factor : {1, 2, 4}) {
      const std::string text = repeat(unit, times * factor / 4);
      EncodeReport report;
      const Ids ids = t.encode(text, {.add_special = false}, &report);
      if (lossless) {
        EXPECT_EQ(t.decode(ids), text) << "unit: " << unit;
      }
      steps[factor / 2] = report.steps;
    }
    EXPECT_GT(steps[0], 0u);
    EXPECT_LE(steps[1], 2 * steps[0] + 64) << "unit: " << unit;
    EXPECT_LE(steps[2], 4 * steps[0] + 64) << "unit: " << unit;
  }
}

TEST(TokenizerLongRuns, TakeLinearWorkAndNoStackWithEveryPreTokenizer) {
  std::vector<const std::string_view*> seen;
  for (const PreTokenizerRules& rules : pre_tokenizer_rules()) {
    if (std::find(seen.begin(), seen.end(), rules.expressions.data()) != seen.end()) continue;
    seen.push_back(rules.expressions.data());
    if (rules.spells_blanks) continue;  // the byte-level sample is no vocabulary for them
    SCOPED_TRACE(rules.name);
    const auto t = Tokenizer::from_metadata(sample::byte_level(std::string(rules.name)));
    on_small_stack([&] { expect_linear(*t); });
  }
}

TEST(TokenizerLongRuns, TakeLinearWorkAndNoStackInUnigramAndWordPiece) {
  const auto unigram = Tokenizer::from_metadata(sample::unigram());
  on_small_stack([&] { expect_linear(*unigram); });
  const auto wordpiece = Tokenizer::from_metadata(sample::wordpiece());
  on_small_stack([&] { expect_linear(*wordpiece, false); });
}

TEST(TokenizerLongRuns, TakeLinearWorkAndNoStackInSentencePiece) {
  const auto t = Tokenizer::from_metadata(sample::sentencepiece());
  on_small_stack([&] { expect_linear(*t); });
}

TEST(TokenizerLongRuns, TakeLinearWorkAndNoStackInPublishedVocabularies) {
  for (const std::string name : {"llama-spm", "llama-bpe", "qwen2", "gpt-2"}) {
    SCOPED_TRACE(name);
    LEMMA_TEST_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-" + name + ".gguf");
    const auto t = Tokenizer::from_metadata(weights::open_checkpoint(path)->metadata());
    on_small_stack([&] { expect_linear(*t); });
  }
}

TEST(Tokenizer, EncodesTheSameOnManyThreads) {
  const auto t = Tokenizer::from_metadata(sample::sentencepiece());
  const std::string text = repeat("ab c <s> \u4e16\u4e16 aaaa", 200);
  const Ids expected = t->encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = t->encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace lemma::text
