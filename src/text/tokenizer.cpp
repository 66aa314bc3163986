// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/raise.hpp"
#include "text/pretokenizer.hpp"
#include "text/segmenter.hpp"
#include "text/special_tokens.hpp"
#include "text/token_matcher.hpp"
#include "text/vocabulary.hpp"

namespace lemma::text {
namespace {

constexpr std::string_view kSentencePiece = "llama";
constexpr std::string_view kByteLevelBpe = "gpt2";
// Offsets are 32-bit, and a SentencePiece text can grow threefold.
constexpr std::size_t kLongestText = std::size_t{1} << 30;

bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

struct Tokenizer::Parts {
  explicit Parts(const weights::Metadata& metadata, TokenizerOverrides overrides);

  std::string model;
  Vocabulary vocabulary;
  SpecialRules special;
  bool space_prefix = false;
  std::unique_ptr<const Segmenter> segmenter;
  TokenMatcher user_defined;  ///< what is cut out of any text
  TokenMatcher all_special;   ///< those, control and unknown tokens: with parse_special

 private:
  void build_matchers();
};

namespace {

/// The model's name, before anything large is read: the message is better than one about arrays.
std::string known_model(const weights::Metadata& metadata) {
  std::string model = metadata.string("tokenizer.ggml.model");
  if (model != kSentencePiece && model != kByteLevelBpe) {
    base::raise(ErrorKind::kUnsupported,
                "unknown tokenizer model '{}' (tokenizer.ggml.model); known: {}, {}", model,
                kByteLevelBpe, kSentencePiece);
  }
  return model;
}

SpecialDefaults defaults_of(const weights::Metadata& metadata, std::string_view model) {
  if (model == kSentencePiece) return {.adds_bos = true, .classic_spellings = true};
  const std::string pre = metadata.string_or("tokenizer.ggml.pre", "default");
  return {.adds_bos = PreTokenizer::named(pre).adds_bos(), .classic_spellings = false};
}

}  // namespace

Tokenizer::Parts::Parts(const weights::Metadata& metadata, TokenizerOverrides overrides)
    : model(known_model(metadata)),
      vocabulary(metadata),
      special(read_special_rules(metadata, vocabulary, defaults_of(metadata, model))) {
  if (model == kSentencePiece) {
    space_prefix = overrides.add_space_prefix.value_or(
        metadata.boolean_or("tokenizer.ggml.add_space_prefix", true));
    segmenter = make_sentencepiece(vocabulary, special.tokens.unknown, space_prefix);
  } else {
    if (!metadata.has("tokenizer.ggml.pre")) {
      base::log(base::LogLevel::kWarning,
                "the file names no pre-tokenizer (tokenizer.ggml.pre): 'default' is taken, which "
                "may cut words otherwise than the model was trained on");
    }
    segmenter = make_byte_level_bpe(metadata, vocabulary);
  }
  build_matchers();
}

void Tokenizer::Parts::build_matchers() {
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    switch (vocabulary.kind(id)) {
      case TokenKind::kUserDefined:
        user_defined.add(vocabulary.text(id), id);
        all_special.add(vocabulary.text(id), id);
        break;
      case TokenKind::kControl:
      case TokenKind::kUnknown:
        all_special.add(vocabulary.text(id), id);
        break;
      case TokenKind::kNormal:
      case TokenKind::kUnused:
      case TokenKind::kByte:
        break;
    }
  }
}

std::unique_ptr<const Tokenizer> Tokenizer::from_metadata(const weights::Metadata& metadata,
                                                          TokenizerOverrides overrides) {
  auto parts = std::make_unique<const Parts>(metadata, overrides);
  return std::unique_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options,
                                       EncodeReport* report) const {
  if (text.size() >= kLongestText) {
    base::raise(ErrorKind::kUsage, "a text of {} bytes is too long, expected less than {}",
                text.size(), kLongestText);
  }
  const SpecialRules& special = parts_->special;
  const TokenMatcher& matcher = options.parse_special ? parts_->all_special : parts_->user_defined;
  std::vector<TokenId> ids;
  if (options.add_special && special.adds_bos) ids.push_back(*special.tokens.bos);
  MergeScratch scratch;
  bool after_special = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<TokenMatcher::Match> match = matcher.find(text, at);
    const std::size_t stop = match ? match->begin : text.size();
    if (stop > at) {
      parts_->segmenter->encode(text.substr(at, stop - at), after_special, scratch, ids);
      after_special = false;
    }
    if (!match) break;
    ids.push_back(match->id);
    after_special = true;
    at = match->end;
    if (!special.strips_right.empty() && special.strips_right[match->id]) {
      while (at < text.size() && is_ascii_space(text[at])) ++at;
    }
  }
  if (options.add_special && special.adds_eos) ids.push_back(*special.tokens.eos);
  if (options.add_special && special.adds_bos && starts_with_two_bos(ids)) {
    base::log(base::LogLevel::kWarning,
              "the text begins with the BOS token '{}' and the model adds one: the prompt has two",
              parts_->vocabulary.text(*special.tokens.bos));
  }
  if (report) report->steps = scratch.steps;
  return ids;
}

bool Tokenizer::starts_with_two_bos(std::span<const TokenId> ids) const noexcept {
  return bos() && ids.size() >= 2 && ids[0] == *bos() && ids[1] == *bos();
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string text;
  bool drop_blank = options.at_text_start && parts_->space_prefix;
  for (const TokenId id : ids) {
    std::string bytes = piece(id, options.show_special);
    if (drop_blank && !bytes.empty()) {
      if (bytes[0] == ' ') bytes.erase(0, 1);
      drop_blank = false;
    }
    text += bytes;
  }
  return text;
}

std::string Tokenizer::piece(TokenId id, bool show_special) const {
  switch (kind(id)) {
    case TokenKind::kControl:
    case TokenKind::kUnknown:
      return show_special ? parts_->vocabulary.text(id) : std::string();
    case TokenKind::kUserDefined:
      return parts_->vocabulary.text(id);
    case TokenKind::kNormal:
    case TokenKind::kUnused:
    case TokenKind::kByte:
      break;
  }
  std::string bytes;
  parts_->segmenter->decode(id, bytes);
  return bytes;
}

std::string_view Tokenizer::token_text(TokenId id) const {
  static_cast<void>(kind(id));  // checks the range
  return parts_->vocabulary.text(id);
}

TokenKind Tokenizer::kind(TokenId id) const {
  if (!parts_->vocabulary.contains(id)) {
    base::raise(ErrorKind::kUsage, "token id {} is outside the vocabulary of {} tokens", id,
                parts_->vocabulary.size());
  }
  return parts_->vocabulary.kind(id);
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  static_cast<void>(kind(id));
  const std::vector<TokenId>& ends = parts_->special.end_of_generation;
  return std::binary_search(ends.begin(), ends.end(), id);
}

std::size_t Tokenizer::vocabulary_size() const noexcept {
  return parts_->vocabulary.size();
}
const SpecialTokens& Tokenizer::special() const noexcept {
  return parts_->special.tokens;
}
std::span<const TokenId> Tokenizer::end_of_generation() const noexcept {
  return parts_->special.end_of_generation;
}
bool Tokenizer::adds_bos() const noexcept {
  return parts_->special.adds_bos;
}
bool Tokenizer::adds_eos() const noexcept {
  return parts_->special.adds_eos;
}
bool Tokenizer::adds_space_prefix() const noexcept {
  return parts_->space_prefix;
}
std::optional<TokenId> Tokenizer::find(std::string_view token_text) const noexcept {
  return parts_->vocabulary.find(token_text);
}
std::string_view Tokenizer::model_name() const noexcept {
  return parts_->model;
}

}  // namespace lemma::text
