// SPDX-License-Identifier: Apache-2.0
#include "text/wordpiece.hpp"

#include "base/raise.hpp"
#include "base/utf8.hpp"

namespace lemma::text {

WordPiece::WordPiece(std::optional<TokenId> unknown, std::size_t most_characters)
    : unknown_(unknown), most_characters_(most_characters), nodes_(2, -1) {}

void WordPiece::add(std::uint32_t root, std::string_view text, TokenId id) {
  if (text.empty()) return;
  std::uint32_t node = root;
  for (const char c : text) {
    const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
    if (const std::uint32_t* child = edges_.find(key)) {
      node = *child;
      continue;
    }
    if (nodes_.size() >= 0xffffffff) base::raise(ErrorKind::kBadFile, "the pieces are too many");
    const auto child = static_cast<std::uint32_t>(nodes_.size());
    edges_.add(key, child);
    nodes_.push_back(-1);
    node = child;
  }
  if (nodes_[node] < 0) nodes_[node] = id;
}

void WordPiece::encode_word(std::string_view word, EncodeScratch& scratch,
                            std::vector<TokenId>& out) const {
  if (word.empty()) return;
  if (const auto known = scratch.words.find(word)) {
    out.insert(out.end(), known->begin(), known->end());
    return;
  }
  const std::size_t before = out.size();
  std::size_t characters = 0;
  for (std::size_t at = 0; at < word.size() && characters <= most_characters_; ++characters) {
    at += base::decode_utf8(word.substr(at)).length;
  }
  bool whole = characters <= most_characters_;
  for (std::size_t at = 0; whole && at < word.size();) {
    std::uint32_t node = at == 0 ? 0 : 1;
    std::size_t longest = at;
    TokenId id = -1;
    for (std::size_t end = at; end < word.size();) {
      ++scratch.merge.steps;
      const std::uint32_t* child =
          edges_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(word[end]));
      if (!child) break;
      node = *child;
      ++end;
      if (nodes_[node] < 0) continue;
      longest = end;
      id = nodes_[node];
    }
    whole = longest > at;
    if (whole) out.push_back(id);
    at = longest;
  }
  if (!whole) {
    out.resize(before);
    if (!unknown_) {
      base::raise(ErrorKind::kBadFile, "the vocabulary has no pieces for '{}' and no unknown token",
                  base::repair_utf8(word.substr(0, 100)));
    }
    out.push_back(*unknown_);
  }
  scratch.words.add(word, std::span(out).subspan(before));
}

}  // namespace lemma::text
