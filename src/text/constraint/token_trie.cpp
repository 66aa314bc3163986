// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/token_trie.hpp"

#include <algorithm>
#include <utility>

namespace lemma::text::constraint {
namespace {

/// A token that long is no choice under a constraint: depths are 16 bits wide.
constexpr std::size_t kLongestText = 0xfff0;

std::size_t common_prefix(std::string_view a, std::string_view b) noexcept {
  const std::size_t limit = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i < limit && a[i] == b[i]) ++i;
  return i;
}

bool is_text(const Tokenizer& tokenizer, TokenId id) {
  switch (tokenizer.kind(id)) {
    case TokenKind::kNormal:
    case TokenKind::kUserDefined:
    case TokenKind::kByte:
      return !tokenizer.is_end_of_generation(id);
    case TokenKind::kUnknown:
    case TokenKind::kControl:
    case TokenKind::kUnused:
      return false;
  }
  return false;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) : vocabulary_(tokenizer.vocabulary_size()) {
  std::vector<std::pair<std::string, TokenId>> texts;
  for (std::size_t i = 0; i < vocabulary_; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!is_text(tokenizer, id)) continue;
    std::string text = tokenizer.piece(id);
    if (!text.empty() && text.size() <= kLongestText) texts.emplace_back(std::move(text), id);
  }
  std::sort(texts.begin(), texts.end());
  ranks_.assign(vocabulary_, kNone);
  offsets_.push_back(0);
  for (const auto& [text, id] : texts) {
    ranks_[static_cast<std::size_t>(id)] = static_cast<std::uint32_t>(ids_.size());
    ids_.push_back(id);
    pool_ += text;
    offsets_.push_back(static_cast<std::uint32_t>(pool_.size()));
    depth_ = std::max(depth_, text.size());
  }
  make_nodes();
  const auto ends = tokenizer.end_of_generation();
  ends_.assign(ends.begin(), ends.end());
}

void TokenTrie::make_nodes() {
  std::vector<std::uint32_t> open;  // the nodes above the next one
  const auto close = [&](std::size_t depth) {
    while (open.size() > depth) {
      nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
      open.pop_back();
    }
  };
  for (std::uint32_t rank = 0; rank < ids_.size(); ++rank) {
    const std::string_view text = text_of_rank(rank);
    const std::size_t common = rank == 0 ? 0 : common_prefix(text_of_rank(rank - 1), text);
    close(common);
    for (std::size_t i = common; i < text.size(); ++i) {
      open.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, rank, rank, static_cast<std::uint16_t>(i + 1), static_cast<std::uint8_t>(text[i])});
    }
    Node& node = nodes_[open.back()];
    if (node.first == node.last) node.first = rank;
    node.last = rank + 1;
  }
  close(0);
}

std::vector<TokenTrie::Entry> TokenTrie::list_of(std::span<const std::uint32_t> ranks) const {
  std::vector<Entry> list;
  list.reserve(ranks.size());
  for (const std::uint32_t rank : ranks) {
    const std::size_t common =
        list.empty() ? 0 : common_prefix(text_of_rank(list.back().rank), text_of_rank(rank));
    list.push_back({rank, static_cast<std::uint32_t>(common)});
  }
  return list;
}

std::vector<TokenTrie::Entry> TokenTrie::longer_than(std::size_t bytes) const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < ids_.size(); ++rank) {
    if (text_of_rank(rank).size() > bytes) ranks.push_back(rank);
  }
  return list_of(ranks);
}

bool TokenTrie::is_end(TokenId id) const noexcept {
  return std::binary_search(ends_.begin(), ends_.end(), id);
}

}  // namespace lemma::text::constraint
