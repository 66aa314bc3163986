// SPDX-License-Identifier: Apache-2.0
#include "text/unigram.hpp"

#include <algorithm>

#include "base/raise.hpp"
#include "base/utf8.hpp"

namespace lemma::text {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(std::optional<TokenId> unknown) : unknown_(unknown), nodes_(1) {
  byte_tokens_.fill(-1);
}

void Unigram::see_score(double score) {
  lowest_ = has_score_ ? std::min(lowest_, score) : score;
  has_score_ = true;
}

void Unigram::add_piece(std::string_view text, TokenId id, double score) {
  if (text.empty()) return;
  std::uint32_t node = 0;
  for (const char c : text) {
    const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
    if (const std::uint32_t* child = edges_.find(key)) {
      node = *child;
      continue;
    }
    if (nodes_.size() >= 0xffffffff) base::raise(ErrorKind::kBadFile, "the pieces are too many");
    const auto child = static_cast<std::uint32_t>(nodes_.size());
    edges_.add(key, child);
    nodes_.emplace_back();
    node = child;
  }
  if (nodes_[node].id < 0) nodes_[node] = {id, score};
}

void Unigram::add_byte_token(unsigned char byte, TokenId id) {
  if (byte_tokens_[byte] < 0) byte_tokens_[byte] = id;
}

void Unigram::extend(std::string_view text, std::size_t at, std::vector<Best>& best,
                     std::size_t& steps) const {
  const auto offer = [&](std::size_t end, double score, TokenId id) {
    Best& there = best[end];
    if (there.reached && !(score > there.score)) return;
    there = {score, static_cast<std::uint32_t>(at), id, true};
  };
  const double here = best[at].score;
  const std::size_t single = at + base::decode_utf8(text.substr(at)).length;
  bool has_single = false;
  std::uint32_t node = 0;
  for (std::size_t end = at; end < text.size();) {
    ++steps;
    const std::uint32_t* child =
        edges_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[end]));
    if (!child) break;
    node = *child;
    ++end;
    if (nodes_[node].id < 0) continue;
    offer(end, here + nodes_[node].score, nodes_[node].id);
    has_single = has_single || end == single;
  }
  if (!has_single) offer(single, here + lowest_ - kUnknownPenalty, kUnknownPart);
}

void Unigram::encode(std::string_view text, EncodeScratch& scratch,
                     std::vector<TokenId>& out) const {
  if (text.empty()) return;
  if (const auto known = scratch.words.find(text)) {
    out.insert(out.end(), known->begin(), known->end());
    return;
  }
  const std::size_t before = out.size();
  std::vector<Best> best(text.size() + 1, Best{0, 0, kUnknownPart, false});
  best[0].reached = true;
  for (std::size_t at = 0; at < text.size();) {
    // A piece of a hostile vocabulary may end inside a character; no path goes on from there.
    if (best[at].reached) extend(text, at, best, scratch.merge.steps);
    at += base::decode_utf8(text.substr(at)).length;
  }
  std::vector<std::uint32_t> ends;
  for (std::size_t end = text.size(); end > 0; end = best[end].begin) {
    ends.push_back(static_cast<std::uint32_t>(end));
  }
  std::size_t unknown_begin = text.size();
  std::size_t begin = 0;
  for (std::size_t i = ends.size(); i-- > 0; begin = ends[i]) {
    const std::size_t end = ends[i];
    if (best[end].id == kUnknownPart) {
      unknown_begin = std::min(unknown_begin, begin);
      continue;
    }
    if (unknown_begin < begin) emit_unknown(text.substr(unknown_begin, begin - unknown_begin), out);
    unknown_begin = text.size();
    out.push_back(best[end].id);
  }
  if (unknown_begin < text.size()) emit_unknown(text.substr(unknown_begin), out);
  scratch.words.add(text, std::span(out).subspan(before));
}

void Unigram::emit_unknown(std::string_view part, std::vector<TokenId>& out) const {
  const bool bytes = std::all_of(part.begin(), part.end(), [&](char c) {
    return byte_tokens_[static_cast<unsigned char>(c)] >= 0;
  });
  if (bytes) {
    for (const char c : part) out.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
  } else if (unknown_) {
    out.push_back(*unknown_);
  } else {
    base::raise(ErrorKind::kBadFile, "the vocabulary has no piece for '{}' and no unknown token",
                base::repair_utf8(part));
  }
}

}  // namespace lemma::text
