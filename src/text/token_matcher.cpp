// SPDX-License-Identifier: Apache-2.0
#include "text/token_matcher.hpp"

#include "base/raise.hpp"

namespace lemma::text {

TokenMatcher::TokenMatcher() : nodes_(1), by_first_(256, kNone) {}

std::uint32_t TokenMatcher::child(std::uint32_t node, unsigned char byte) const noexcept {
  std::uint32_t next = nodes_[node].first_child;
  while (next != kNone && nodes_[next].byte != byte) next = nodes_[next].next_sibling;
  return next;
}

void TokenMatcher::add(std::string_view spelling, TokenId id) {
  if (spelling.empty()) return;
  std::uint32_t node = 0;
  for (const char c : spelling) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t next = child(node, byte);
    if (next == kNone) {
      if (nodes_.size() >= kNone) {
        base::raise(ErrorKind::kBadFile, "the special tokens' spellings take 4 GiB or more");
      }
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({kNone, nodes_[node].first_child, -1, byte});
      nodes_[node].first_child = next;
      if (node == 0) by_first_[byte] = next;
    }
    node = next;
  }
  if (nodes_[node].id < 0) nodes_[node].id = id;
}

std::optional<TokenMatcher::Match> TokenMatcher::find(std::string_view text,
                                                      std::size_t from) const noexcept {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::optional<Match> longest;
    std::uint32_t node = by_first_[static_cast<unsigned char>(text[begin])];
    for (std::size_t at = begin + 1; node != kNone; ++at) {
      if (nodes_[node].id >= 0) longest = Match{begin, at, nodes_[node].id};
      if (at == text.size()) break;
      node = child(node, static_cast<unsigned char>(text[at]));
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace lemma::text
