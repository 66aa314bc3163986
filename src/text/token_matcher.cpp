// SPDX-License-Identifier: Apache-2.0
#include "text/token_matcher.hpp"

#include <algorithm>

#include "base/raise.hpp"
#include "text/unicode.hpp"

namespace lemma::text {
namespace {

/// The code point that ends at `end`.
base::Decoded decode_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) {
    --begin;
  }
  const base::Decoded c = base::decode_utf8(text.substr(begin, end - begin));
  if (c.length == end - begin) return c;
  return {base::kReplacementCharacter, 1, false, false};
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word(decode_before(text, begin).code_point)) return false;
  return end == text.size() || !is_word(base::decode_utf8(text.substr(end)).code_point);
}

std::size_t skip_white_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const base::Decoded c = base::decode_utf8(text.substr(at));
    if (!is_white_space(c.code_point)) break;
    at += c.length;
  }
  return at;
}

std::size_t skip_white_space_back(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    const base::Decoded c = decode_before(text, at);
    if (!is_white_space(c.code_point)) break;
    at -= c.length;
  }
  return std::max(at, least);
}

}  // namespace

TokenMatcher::TokenMatcher() : nodes_(1), by_first_(256, kNone) {}

std::uint32_t TokenMatcher::child(std::uint32_t node, unsigned char byte) const noexcept {
  std::uint32_t next = nodes_[node].first_child;
  while (next != kNone && nodes_[next].byte != byte) next = nodes_[next].next_sibling;
  return next;
}

void TokenMatcher::add(std::string_view spelling, TokenId id, MatchRules rules) {
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
      nodes_.push_back({kNone, nodes_[node].first_child, -1, byte, {}});
      nodes_[node].first_child = next;
      if (node == 0) by_first_[byte] = next;
    }
    node = next;
  }
  if (nodes_[node].id >= 0) return;
  nodes_[node].id = id;
  nodes_[node].rules = rules;
}

std::optional<TokenMatcher::Match> TokenMatcher::find(std::string_view text,
                                                      std::size_t from) const noexcept {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::uint32_t node = by_first_[static_cast<unsigned char>(text[begin])];
    std::uint32_t longest = kNone;
    std::size_t end = begin;
    for (std::size_t at = begin + 1; node != kNone; ++at) {
      if (nodes_[node].id >= 0) {
        longest = node;
        end = at;
      }
      if (at == text.size()) break;
      node = child(node, static_cast<unsigned char>(text[at]));
    }
    if (longest == kNone) continue;
    const MatchRules& rules = nodes_[longest].rules;
    if (rules.single_word && !stands_alone(text, begin, end)) {
      begin = end - 1;  // the reference does not look for another token inside
      continue;
    }
    return Match{rules.strips_left ? skip_white_space_back(text, begin, from) : begin,
                 rules.strips_right ? skip_white_space(text, end) : end, nodes_[longest].id};
  }
  return std::nullopt;
}

}  // namespace lemma::text
