// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/raise.hpp"
#include "text/tokenizer_parts.hpp"

namespace lemma::text {
namespace {

// Offsets are 32-bit, and a SentencePiece text can grow threefold.
constexpr std::size_t kLongestText = std::size_t{1} << 30;

/// Finds the tokens that are cut out of a text, from left to right.
class Cutter {
 public:
  Cutter(const TokenizerParts& parts, std::string_view text, const EncodeOptions& options)
      : parts_(parts), text_(text), options_(options), plain_(options.plain) {}

  std::optional<TokenMatcher::Match> next(std::size_t at) {
    if (!options_.parse_special) return parts_.user_defined.find(text_, at);
    for (;;) {
      const auto match = parts_.all_special.find(text_, at);
      if (!match || !is_plain(*match)) return match;
      // A user-defined piece may begin where a control token is spelt.
      const auto piece = parts_.user_defined.find(text_.substr(0, match->end), match->begin);
      if (piece && piece->begin == match->begin) return piece;
      at = match->begin + 1;
    }
  }

 private:
  /// True for a token that only parse_special reads, whose own spelling, without white space beside
  /// it, touches plain text.
  bool is_plain(const TokenMatcher::Match& match) {
    if (plain_.empty() || parts_.vocabulary->kind(match.id) == TokenKind::kUserDefined)
      return false;
    constexpr std::string_view kBlanks = " \t\r\n";
    const std::string_view spelt = text_.substr(match.begin, match.end - match.begin);
    const std::size_t first = std::min(spelt.find_first_not_of(kBlanks), spelt.size());
    const std::size_t begin = match.begin + first;
    const std::size_t end = match.begin + spelt.find_last_not_of(kBlanks) + 1;
    while (!plain_.empty() && plain_.front().end <= begin) plain_ = plain_.subspan(1);
    return !plain_.empty() && plain_.front().begin < end;
  }

  const TokenizerParts& parts_;
  std::string_view text_;
  const EncodeOptions& options_;
  std::span<const TextRange> plain_;
};

}  // namespace

struct Tokenizer::Parts : TokenizerParts {
  explicit Parts(TokenizerParts&& parts) : TokenizerParts(std::move(parts)) {}
};

std::unique_ptr<const Tokenizer> Tokenizer::from_metadata(const weights::Metadata& metadata,
                                                          TokenizerOverrides overrides) {
  const bool json_first =
      !metadata.has("tokenizer.ggml.model") || metadata.boolean_or(kJsonFirstKey, false);
  if (json_first && metadata.has(kJsonKey)) {
    return from_json(metadata.string(kJsonKey), metadata.string_or(kConfigKey, ""),
                     std::move(overrides), metadata.string_or(kGenerationKey, ""));
  }
  if (!metadata.has("tokenizer.ggml.model")) {
    base::raise(ErrorKind::kBadFile,
                "no tokenizer was found: expected the key 'tokenizer.ggml.model', or a "
                "tokenizer.json beside the weights");
  }
  return std::unique_ptr<const Tokenizer>(
      new Tokenizer(std::make_unique<const Parts>(parts_from_ggml_keys(metadata, overrides))));
}

std::unique_ptr<const Tokenizer> Tokenizer::from_json(std::string_view json,
                                                      std::string_view config,
                                                      TokenizerOverrides overrides,
                                                      std::string_view generation) {
  return std::unique_ptr<const Tokenizer>(new Tokenizer(
      std::make_unique<const Parts>(parts_from_json(json, config, generation, overrides))));
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
  Cutter cutter(*parts_, text, options);
  std::vector<TokenId> ids;
  if (options.add_special) ids = special.before;
  EncodeScratch scratch;
  scratch.words.open(text.size());
  bool after_special = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<TokenMatcher::Match> match = cutter.next(at);
    const std::size_t stop = match ? match->begin : text.size();
    if (stop > at) {
      parts_->segmenter->encode(text.substr(at, stop - at),
                                {.at_start = at == 0, .after_special = after_special}, scratch,
                                ids);
      after_special = false;
    }
    if (!match) break;
    ids.push_back(match->id);
    after_special = true;
    at = match->end;
  }
  if (options.add_special) ids.insert(ids.end(), special.after.begin(), special.after.end());
  if (options.add_special && special.adds_bos && starts_with_two_bos(ids)) {
    base::log(base::LogLevel::kWarning,
              "the text begins with the BOS token '{}' and the model adds one: the prompt has two",
              parts_->vocabulary->text(*special.tokens.bos));
  }
  if (scratch.merge.dropped > 0) {
    base::log(base::LogLevel::kWarning,
              "{} bytes of the text have no token in this vocabulary and were left out",
              scratch.merge.dropped);
  }
  if (report) *report = {text.size() + scratch.steps(), scratch.merge.dropped};
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
      if (!show_special) return {};
      if (parts_->decodes_special) break;
      return parts_->vocabulary->text(id);
    case TokenKind::kUserDefined:
      if (parts_->decodes_special) break;
      return parts_->vocabulary->text(id);
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
  return parts_->vocabulary->text(id);
}

TokenKind Tokenizer::kind(TokenId id) const {
  if (!parts_->vocabulary->contains(id)) {
    base::raise(ErrorKind::kUsage, "token id {} is outside the vocabulary of {} tokens", id,
                parts_->vocabulary->size());
  }
  return parts_->vocabulary->kind(id);
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  static_cast<void>(kind(id));
  const std::vector<TokenId>& ends = parts_->special.end_of_generation;
  return std::binary_search(ends.begin(), ends.end(), id);
}

std::size_t Tokenizer::vocabulary_size() const noexcept {
  return parts_->vocabulary->size();
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
  return parts_->vocabulary->find(token_text);
}
std::string_view Tokenizer::model_name() const noexcept {
  return parts_->model;
}

}  // namespace lemma::text
