// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/raise.hpp"
#include "base/utf8.hpp"

namespace lemma::text {
namespace {

// Tags below zero are no symbols: they never merge.
constexpr std::int32_t kUnknownTag = -1;
constexpr std::int32_t kBytesTag = -2;  // to be spelt in byte tokens

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

Bpe::Bpe(BpeOptions options, std::size_t tokens) : options_(std::move(options)), tokens_(tokens) {
  byte_tokens_.fill(-1);
  symbols_.reserve(tokens);
}

void Bpe::add_token(std::string_view text, TokenId id) {
  if (text.empty()) return;
  symbols_.emplace(text, id);
  longest_ = std::max(longest_, text.size());
}

void Bpe::add_byte_token(unsigned char byte, TokenId id) {
  if (byte_tokens_[byte] < 0) byte_tokens_[byte] = id;
}

std::int32_t Bpe::symbol_of(const std::string& text) {
  const std::size_t next = tokens_ + extra_symbols_;
  if (next >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    base::raise(ErrorKind::kBadFile, "the merges name too many parts");
  }
  const auto [entry, added] = symbols_.emplace(text, static_cast<std::int32_t>(next));
  if (added) ++extra_symbols_;
  return entry->second;
}

void Bpe::add_merge(std::string_view left, std::string_view right, std::size_t rank) {
  std::string_view tail = right;
  if (!options_.prefix.empty() && tail.starts_with(options_.prefix)) {
    tail.remove_prefix(options_.prefix.size());
  }
  const std::int32_t first = symbol_of(std::string(left)), second = symbol_of(std::string(right));
  const std::int32_t merged = symbol_of(std::string(left) + std::string(tail));
  rules_.add(pair_key(first, second), {static_cast<std::int32_t>(rank), merged});
}

void Bpe::finish() {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    if (!options_.by_bytes) continue;
    // A merge may start from a byte that is no token itself, so every byte has a symbol.
    symbols_of_bytes_[byte] = symbol_of(text);
    if (byte_tokens_[byte] < 0 && is_token(symbols_of_bytes_[byte])) {
      byte_tokens_[byte] = symbols_of_bytes_[byte];
    }
  }
}

bool Bpe::has_token(std::string_view text) const {
  const auto found = symbols_.find(std::string(text));
  return found != symbols_.end() && is_token(found->second);
}

void Bpe::push_unknown(std::size_t begin, std::size_t end, MergeScratch& scratch) const {
  std::vector<MergeSymbol>& symbols = scratch.symbols;
  if (!options_.unknown && options_.drops_before_merging) {
    scratch.dropped += end - begin;
    return;
  }
  if (options_.fuse_unknown && !symbols.empty() && symbols.back().tag == kUnknownTag) {
    symbols.back().end = static_cast<std::uint32_t>(end);
  } else {
    push_symbol(symbols, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end),
                kUnknownTag);
  }
}

void Bpe::start_with_bytes(std::string_view word, MergeScratch& scratch) const {
  for (std::uint32_t i = 0; i < word.size(); ++i) {
    const std::int32_t symbol = symbols_of_bytes_[static_cast<unsigned char>(word[i])];
    if (options_.drops_before_merging && !is_token(symbol)) {
      push_unknown(i, i + 1, scratch);
    } else {
      push_symbol(scratch.symbols, i, i + 1, symbol);
    }
  }
}

bool Bpe::has_bytes(std::string_view text) const noexcept {
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return byte_tokens_[static_cast<unsigned char>(c)] >= 0; });
}

void Bpe::start_with_characters(std::string_view word, MergeScratch& scratch) const {
  std::string text;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t end = at + base::decode_utf8(word.substr(at)).length;
    const std::string_view character = word.substr(at, end - at);
    text.clear();
    if (at > 0) text = options_.prefix;
    text += character;
    if (end == word.size()) text += options_.suffix;
    std::int32_t tag = kUnknownTag;
    if (const auto found = symbols_.find(text); found != symbols_.end()) {
      tag = found->second;
    } else if (options_.byte_fallback && has_bytes(text)) {
      tag = kBytesTag;
    }
    if (tag == kUnknownTag) {
      push_unknown(at, end, scratch);
    } else {
      push_symbol(scratch.symbols, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end),
                  tag);
    }
    at = end;
  }
}

void Bpe::encode_word(std::string_view word, EncodeScratch& scratch,
                      std::vector<TokenId>& out) const {
  if (const auto known = scratch.words.find(word)) {
    out.insert(out.end(), known->begin(), known->end());
    return;
  }
  const std::size_t before = out.size();
  if (options_.ignore_merges && word.size() <= longest_) {
    const auto whole = symbols_.find(std::string(word));
    if (whole != symbols_.end() && is_token(whole->second)) {
      out.push_back(whole->second);
      scratch.words.add(word, std::span(out).subspan(before));
      return;
    }
  }
  MergeScratch& merge = scratch.merge;
  const std::size_t dropped = merge.dropped;
  merge.symbols.clear();
  if (options_.by_bytes) {
    start_with_bytes(word, merge);
  } else {
    start_with_characters(word, merge);
  }
  merge.steps += merge.symbols.size();
  merge_symbols(merge, [&](const MergeSymbol& a, const MergeSymbol& b) -> std::optional<Merged> {
    if (a.tag < 0 || b.tag < 0) return std::nullopt;
    const Rule* rule = rules_.find(pair_key(a.tag, b.tag));
    if (!rule) return std::nullopt;
    return Merged{double(rule->rank), rule->symbol};
  });
  emit(word, merge, out);
  // A word that loses something is counted each time.
  if (merge.dropped == dropped) scratch.words.add(word, std::span(out).subspan(before));
}

void Bpe::emit(std::string_view word, MergeScratch& merge, std::vector<TokenId>& out) const {
  bool after_unknown = false;
  for (const MergeSymbol& symbol : merge.symbols) {
    if (symbol.begin == symbol.end) continue;
    const std::string_view text = word.substr(symbol.begin, symbol.end - symbol.begin);
    if (is_token(symbol.tag)) {
      out.push_back(symbol.tag);
      after_unknown = false;
    } else if (symbol.tag == kUnknownTag) {
      if (options_.unknown)
        out.push_back(*options_.unknown);
      else
        merge.dropped += text.size();
    } else if (symbol.tag == kBytesTag && symbol.end == word.size()) {
      emit_bytes(std::string(text) + options_.suffix, after_unknown, merge, out);
    } else {
      emit_bytes(text, after_unknown, merge, out);
    }
  }
}

void Bpe::emit_bytes(std::string_view bytes, bool& after_unknown, MergeScratch& merge,
                     std::vector<TokenId>& out) const {
  for (const char c : bytes) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(c)];
    if (id >= 0) {
      out.push_back(id);
    } else if (!options_.unknown) {
      ++merge.dropped;
    } else if (!(after_unknown && options_.fuse_unknown)) {
      out.push_back(*options_.unknown);
    }
    after_unknown = id < 0;
  }
}

}  // namespace lemma::text
