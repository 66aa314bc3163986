// SPDX-License-Identifier: Apache-2.0
// A tokenizer out of the keys `tokenizer.ggml.*` of a GGUF file.
#include <array>

#include "base/log.hpp"
#include "base/raise.hpp"
#include "text/tokenizer_parts.hpp"

namespace lemma::text {
namespace {

constexpr std::string_view kSentencePiece = "llama", kRankBpe = "gpt2", kUnigram = "t5",
                           kWordPiece = "bert", kGemma4 = "gemma4";

/// The model's name, before anything large is read: the message is better than one about arrays.
std::string known_model(const weights::Metadata& metadata) {
  std::string model = metadata.string("tokenizer.ggml.model");
  for (const std::string_view known : {kSentencePiece, kRankBpe, kUnigram, kWordPiece, kGemma4}) {
    if (model == known) return model;
  }
  base::raise(ErrorKind::kUnsupported,
              "unknown tokenizer model '{}' (tokenizer.ggml.model); known: {}, {}, {}, {}, {}",
              model, kWordPiece, kGemma4, kRankBpe, kSentencePiece, kUnigram);
}

/// The pre-tokenizer's name. Only models that merge by rank have one.
std::string pre_name(const weights::Metadata& metadata, const TokenizerOverrides& overrides,
                     std::string_view model) {
  if (model != kRankBpe && model != kGemma4) {
    if (overrides.pre) {
      base::raise(ErrorKind::kUsage,
                  "a pre-tokenizer ('{}') was asked for, but tokenizer model '{}' has none",
                  *overrides.pre, model);
    }
    return {};
  }
  if (overrides.pre) return *overrides.pre;
  if (model == kGemma4) return std::string(kGemma4);
  if (!metadata.has("tokenizer.ggml.pre")) {
    base::log(base::LogLevel::kWarning,
              "the file names no pre-tokenizer (tokenizer.ggml.pre): 'default' is taken, which "
              "may cut words otherwise than the model was trained on; --pre NAME chooses another");
  }
  return metadata.string_or("tokenizer.ggml.pre", "default");
}

SpecialDefaults defaults_of(std::string_view model, std::string_view pre) {
  SpecialDefaults defaults;
  if (model == kSentencePiece) {
    defaults.adds_bos = defaults.classic_spellings = true;
  } else if (model == kUnigram) {
    defaults.adds_eos = defaults.classic_spellings = true;
  } else if (model == kWordPiece) {
    defaults.adds_bos = defaults.adds_separator = defaults.bert_spellings = true;
  } else {
    const PreTokenizerRules& rules = PreTokenizer::rules_named(pre);
    defaults.adds_bos = rules.adds_bos;
    defaults.adds_separator = rules.adds_separator;
  }
  return defaults;
}

void build_matchers(TokenizerParts& parts) {
  const Vocabulary& vocabulary = *parts.vocabulary;
  const std::vector<bool>& strips = parts.special.strips_right;
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    MatchRules rules;
    rules.strips_right = !strips.empty() && strips[i];
    switch (vocabulary.kind(id)) {
      case TokenKind::kUserDefined:
        parts.user_defined.add(vocabulary.text(id), id, rules);
        parts.all_special.add(vocabulary.text(id), id, rules);
        break;
      case TokenKind::kControl:
      case TokenKind::kUnknown:
        parts.all_special.add(vocabulary.text(id), id, rules);
        break;
      case TokenKind::kNormal:
      case TokenKind::kUnused:
      case TokenKind::kByte:
        break;
    }
  }
}

}  // namespace

TokenizerParts parts_from_ggml_keys(const weights::Metadata& metadata,
                                    const TokenizerOverrides& overrides) {
  TokenizerParts parts;
  parts.model = known_model(metadata);
  const std::string pre = pre_name(metadata, overrides, parts.model);
  const SpecialDefaults defaults = defaults_of(parts.model, pre);
  parts.vocabulary = std::make_unique<Vocabulary>(metadata);
  parts.special = read_special_rules(metadata, *parts.vocabulary, defaults);
  const std::optional<TokenId> unknown = parts.special.tokens.unknown;
  const bool prefix = overrides.add_space_prefix.value_or(
      metadata.boolean_or("tokenizer.ggml.add_space_prefix", true));
  if (parts.model == kSentencePiece) {
    parts.space_prefix = prefix;
    parts.segmenter = make_sentencepiece(*parts.vocabulary, unknown, prefix);
  } else if (parts.model == kUnigram) {
    parts.space_prefix = prefix;
    parts.segmenter = make_unigram(metadata, *parts.vocabulary, unknown, prefix);
  } else if (parts.model == kWordPiece) {
    parts.segmenter = make_wordpiece(metadata, *parts.vocabulary, unknown);
  } else {
    parts.segmenter = make_rank_bpe(metadata, *parts.vocabulary, pre);
  }
  build_matchers(parts);
  return parts;
}

}  // namespace lemma::text
