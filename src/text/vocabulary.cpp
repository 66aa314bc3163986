// SPDX-License-Identifier: Apache-2.0
#include "text/vocabulary.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <functional>
#include <limits>

#include "base/raise.hpp"

namespace lemma::text {
namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kKindsKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";

// Look-ups hash up to the longest spelling, so its length bounds the work per character of text.
// Real vocabularies stay below 300 bytes.
constexpr std::size_t kLongestSpelling = 1 << 16;

void check_length(std::string_view key, std::size_t found, std::size_t tokens) {
  if (found != tokens) {
    base::raise(ErrorKind::kBadFile, "metadata '{}' has {} entries, expected {} (one per token)",
                key, found, tokens);
  }
}

std::vector<TokenKind> read_kinds(const weights::Metadata& metadata, std::size_t tokens) {
  if (!metadata.has(kKindsKey)) return std::vector<TokenKind>(tokens, TokenKind::kNormal);
  const std::vector<std::int32_t> numbers = metadata.i32s(kKindsKey);
  check_length(kKindsKey, numbers.size(), tokens);
  std::vector<TokenKind> kinds(tokens);
  for (std::size_t i = 0; i < tokens; ++i) {
    if (numbers[i] < 0 || numbers[i] > 6) {
      base::raise(ErrorKind::kBadFile, "metadata '{}': token {} has type {}, expected 0 to 6",
                  kKindsKey, i, numbers[i]);
    }
    // 0 means "undefined": a writer that did not say, so a piece of text like any other.
    kinds[i] = numbers[i] == 0 ? TokenKind::kNormal : static_cast<TokenKind>(numbers[i]);
  }
  return kinds;
}

std::uint32_t mark_of(std::size_t hash) {
  return static_cast<std::uint32_t>(std::uint64_t{hash} >> 32);
}

/// The slot that holds `text`, or the empty one where it would stand.
template <typename Slots>
auto* place(Slots& slots, const std::vector<std::string>& texts, std::string_view text,
            std::size_t hash) noexcept {
  const std::size_t mask = slots.size() - 1;
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    auto& slot = slots[at];
    if (slot.id < 0 || (slot.mark == mark_of(hash) && texts[std::size_t(slot.id)] == text))
      return &slot;
  }
}

}  // namespace

Vocabulary::Vocabulary(const weights::Metadata& metadata) : texts_(metadata.strings(kTokensKey)) {
  if (texts_.empty()) base::raise(ErrorKind::kBadFile, "metadata '{}' is empty", kTokensKey);
  if (texts_.size() > static_cast<std::size_t>(std::numeric_limits<TokenId>::max())) {
    base::raise(ErrorKind::kBadFile, "metadata '{}' has {} entries, more than ids can count",
                kTokensKey, texts_.size());
  }
  kinds_ = read_kinds(metadata, texts_.size());
  if (metadata.has(kScoresKey)) {
    scores_ = metadata.floats(kScoresKey);
    check_length(kScoresKey, scores_.size(), texts_.size());
  }
  make_index();
}

Vocabulary::Vocabulary(std::vector<std::string> texts, std::vector<TokenKind> kinds,
                       std::vector<float> scores)
    : texts_(std::move(texts)), kinds_(std::move(kinds)), scores_(std::move(scores)) {
  make_index();
}

void Vocabulary::make_index() {
  index_.assign(std::bit_ceil(2 * texts_.size() + 2), Slot{});
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    longest_ = std::max(longest_, texts_[i].size());
    if (longest_ > kLongestSpelling) {
      base::raise(ErrorKind::kBadFile,
                  "the vocabulary's token {} is {} bytes long, expected at most {}", i, longest_,
                  kLongestSpelling);
    }
    if (texts_[i].empty()) continue;
    const std::size_t hash = std::hash<std::string_view>{}(texts_[i]);
    Slot* const slot = place(index_, texts_, texts_[i], hash);
    if (slot->id < 0) *slot = {mark_of(hash), static_cast<TokenId>(i)};
  }
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const noexcept {
  const std::size_t hash = std::hash<std::string_view>{}(text);
  const Slot* const slot = place(index_, texts_, text, hash);
  if (slot->id < 0 || text.empty()) return std::nullopt;
  return slot->id;
}

std::optional<TokenId> Vocabulary::find_text(std::string_view text) const noexcept {
  if (text.size() > longest_) return std::nullopt;
  const std::optional<TokenId> id = find(text);
  if (!id) return std::nullopt;
  switch (kind(*id)) {
    case TokenKind::kNormal:
    case TokenKind::kUserDefined:
    case TokenKind::kUnused:
      return id;
    case TokenKind::kUnknown:
    case TokenKind::kControl:
    case TokenKind::kByte:
      break;
  }
  return std::nullopt;
}

std::optional<unsigned char> byte_of_spelling(std::string_view text) noexcept {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  if (error != std::errc() || end != text.data() + 5) return std::nullopt;
  return byte;
}

}  // namespace lemma::text
