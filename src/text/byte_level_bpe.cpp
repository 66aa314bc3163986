// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: a word's bytes merge by the rank of their pair in `tokenizer.ggml.merges`. The
// vocabulary spells bytes in GPT-2's printable alphabet; it is translated to plain bytes once, at
// load, and merging then runs on token numbers alone.
#include <array>
#include <limits>
#include <unordered_map>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "text/pretokenizer.hpp"
#include "text/segmenter.hpp"

namespace lemma::text {
namespace {

constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

/// GPT-2's alphabet: bytes that print in Latin-1 spell themselves, the other 68 take the code
/// points from U+0100 on, in order. Index: code point below 0x144; value: byte, or -1.
std::array<std::int16_t, 0x144> make_alphabet() {
  std::array<std::int16_t, 0x144> byte_of{};
  byte_of.fill(-1);
  std::size_t next = 0x100;
  for (std::int16_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    byte_of[prints ? static_cast<std::size_t>(byte) : next++] = byte;
  }
  return byte_of;
}

/// The bytes that a spelling stands for. A character outside the alphabet stands for itself.
std::string to_bytes(std::string_view spelling) {
  static const std::array<std::int16_t, 0x144> alphabet = make_alphabet();
  std::string out;
  for (std::size_t at = 0; at < spelling.size();) {
    const base::Decoded c = base::decode_utf8(spelling.substr(at));
    if (c.valid && c.code_point < alphabet.size() && alphabet[c.code_point] >= 0) {
      out += static_cast<char>(alphabet[c.code_point]);
    } else {
      out += spelling.substr(at, c.length);
    }
    at += c.length;
  }
  return out;
}

class ByteLevelBpe final : public Segmenter {
 public:
  ByteLevelBpe(const weights::Metadata& metadata, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary),
        pre_(PreTokenizer::named(metadata.string_or("tokenizer.ggml.pre", "default"))) {
    bytes_.fill(-1);
    pieces_.reserve(vocabulary.size());
    for (std::size_t i = 0; i < vocabulary.size(); ++i) add_piece(static_cast<TokenId>(i));
    const std::vector<std::string>& merges = metadata.strings(kMergesKey);
    if (merges.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
      base::raise(ErrorKind::kBadFile, "metadata '{}' has {} entries, more than ranks can count",
                  kMergesKey, merges.size());
    }
    merges_.reserve(merges.size());
    for (std::size_t rank = 0; rank < merges.size(); ++rank) add_merge(merges[rank], rank);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      // A merge may start from a byte that is no token itself, so every byte has a symbol.
      symbols_of_bytes_[byte] = symbol_of(std::string(1, static_cast<char>(byte)));
    }
  }

  void encode(std::string_view text, bool /*after_special*/, MergeScratch& scratch,
              std::vector<TokenId>& out) const override {
    std::vector<TextChar> chars;
    classify(text, chars);
    scratch.steps += chars.size();
    std::vector<std::uint32_t> ends;
    pre_.split(chars, ends);
    std::size_t begin = 0;
    for (const std::uint32_t end : ends) {
      const std::size_t stop = end == chars.size() ? text.size() : chars[end].offset;
      encode_word(text.substr(begin, stop - begin), scratch, out);
      begin = stop;
    }
  }

  void decode(TokenId id, std::string& out) const override { out += pieces_[id]; }

 private:
  struct MergeRule {
    std::int32_t rank;
    std::int32_t symbol;
  };

  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }

  void add_piece(TokenId id) {
    const std::string& text = vocabulary_.text(id);
    const TokenKind kind = vocabulary_.kind(id);
    if (kind == TokenKind::kByte) {
      const std::optional<unsigned char> byte = byte_of_spelling(text);
      if (!byte) {
        base::raise(ErrorKind::kBadFile, "token {} is a byte token spelt '{}', expected <0xNN>", id,
                    text);
      }
      pieces_.emplace_back(1, static_cast<char>(*byte));
      return;
    }
    pieces_.push_back(to_bytes(text));
    // Only what text may become takes part in merging: never a control or unknown token.
    if (vocabulary_.find_text(text) != id || pieces_.back().empty()) return;
    words_.emplace(pieces_.back(), id);
    if (pieces_.back().size() == 1) {
      TokenId& byte = bytes_[static_cast<unsigned char>(pieces_.back()[0])];
      if (byte < 0) byte = id;
    }
  }

  void add_merge(const std::string& merge, std::size_t rank) {
    // The first character belongs to the left part even if it is a blank.
    const std::size_t blank = merge.find(' ', 1);
    if (blank == std::string::npos || blank + 1 == merge.size()) {
      base::raise(ErrorKind::kBadFile, "metadata '{}': entry {} is '{}', expected two parts",
                  kMergesKey, rank, merge);
    }
    const std::string left = to_bytes(std::string_view(merge).substr(0, blank));
    const std::string right = to_bytes(std::string_view(merge).substr(blank + 1));
    const std::int32_t first = symbol_of(left), second = symbol_of(right);
    merges_.emplace(key(first, second),
                    MergeRule{static_cast<std::int32_t>(rank), symbol_of(left + right)});
  }

  /// The token of these bytes, or a number past the vocabulary for a part that is no token: it may
  /// merge further, and is taken apart into bytes if it does not.
  std::int32_t symbol_of(const std::string& bytes) {
    const auto next = static_cast<std::int32_t>(vocabulary_.size() + extra_symbols_);
    const auto [entry, added] = words_.emplace(bytes, next);
    if (added) {
      if (next == std::numeric_limits<std::int32_t>::max()) {
        base::raise(ErrorKind::kBadFile, "metadata '{}' names too many parts", kMergesKey);
      }
      ++extra_symbols_;
    }
    return entry->second;
  }

  bool is_token(std::int32_t symbol) const noexcept { return vocabulary_.contains(symbol); }

  void encode_word(std::string_view word, MergeScratch& scratch, std::vector<TokenId>& out) const {
    if (pre_.ignores_merges() && word.size() <= vocabulary_.longest_text()) {
      const auto whole = words_.find(std::string(word));
      if (whole != words_.end() && is_token(whole->second)) {
        out.push_back(whole->second);
        return;
      }
    }
    scratch.symbols.clear();
    for (std::uint32_t i = 0; i < word.size(); ++i) {
      push_symbol(scratch.symbols, i, i + 1,
                  symbols_of_bytes_[static_cast<unsigned char>(word[i])]);
    }
    merge_symbols(scratch, [&](const MergeSymbol& a, const MergeSymbol& b) {
      const auto rule = merges_.find(key(a.tag, b.tag));
      return rule == merges_.end()
                 ? std::nullopt
                 : std::optional(Merged{double(rule->second.rank), rule->second.symbol});
    });
    for (const MergeSymbol& symbol : scratch.symbols) {
      if (symbol.begin == symbol.end) continue;
      if (is_token(symbol.tag)) {
        out.push_back(symbol.tag);
      } else {
        emit_bytes(word.substr(symbol.begin, symbol.end - symbol.begin), out);
      }
    }
  }

  void emit_bytes(std::string_view bytes, std::vector<TokenId>& out) const {
    for (const char c : bytes) {
      const TokenId id = bytes_[static_cast<unsigned char>(c)];
      if (id < 0) {
        base::raise(ErrorKind::kBadFile, "the vocabulary has no token for byte 0x{:02X}",
                    static_cast<unsigned char>(c));
      }
      out.push_back(id);
    }
  }

  const Vocabulary& vocabulary_;
  const PreTokenizer& pre_;
  std::vector<std::string> pieces_;                      ///< [V] the bytes of each token
  std::unordered_map<std::string, std::int32_t> words_;  ///< bytes to symbol
  std::unordered_map<std::uint64_t, MergeRule> merges_;  ///< by key(left, right); the first wins
  std::size_t extra_symbols_ = 0;                        ///< symbols that are no tokens
  std::array<TokenId, 256> bytes_;                       ///< single-byte tokens, or -1
  std::array<std::int32_t, 256> symbols_of_bytes_{};
};

}  // namespace

std::unique_ptr<const Segmenter> make_byte_level_bpe(const weights::Metadata& metadata,
                                                     const Vocabulary& vocabulary) {
  return std::make_unique<ByteLevelBpe>(metadata, vocabulary);
}

}  // namespace lemma::text
