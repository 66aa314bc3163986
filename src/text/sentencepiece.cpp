// SPDX-License-Identifier: Apache-2.0
// SentencePiece's BPE: characters merge while their union is a piece, the highest score first.
#include <array>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "text/blanks.hpp"
#include "text/segmenter.hpp"

namespace lemma::text {
namespace {

class SentencePiece final : public Segmenter {
 public:
  SentencePiece(const Vocabulary& vocabulary, std::optional<TokenId> unknown, bool space_prefix)
      : vocabulary_(vocabulary), unknown_(unknown), space_prefix_(space_prefix) {
    bytes_.fill(-1);
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (vocabulary.kind(id) != TokenKind::kByte) {
        cuts_.add(vocabulary.text(id));
        continue;
      }
      const std::optional<unsigned char> byte = byte_of_spelling(vocabulary.text(id));
      if (!byte) {
        base::raise(ErrorKind::kBadFile, "token {} is a byte token spelt '{}', expected <0xNN>", id,
                    vocabulary.text(id));
      }
      if (bytes_[*byte] < 0) bytes_[*byte] = id;
    }
  }

  void encode(std::string_view text, Stretch stretch, EncodeScratch& scratch,
              std::vector<TokenId>& out) const override {
    const std::string spelt = spell_blanks(text, space_prefix_ && stretch.after_special);
    encode_between_blanks(spelt, cuts_, [&](std::string_view word) {
      if (const auto known = scratch.words.find(word)) {
        out.insert(out.end(), known->begin(), known->end());
        return;
      }
      const std::size_t before = out.size();
      encode_word(word, scratch.merge, out);
      scratch.words.add(word, std::span(out).subspan(before));
    });
  }

  void decode(TokenId id, std::string& out) const override {
    const std::string_view text = vocabulary_.text(id);
    if (vocabulary_.kind(id) == TokenKind::kByte) {
      out += static_cast<char>(*byte_of_spelling(text));
      return;
    }
    out += read_blanks(text);
  }

 private:
  void encode_word(std::string_view word, MergeScratch& scratch, std::vector<TokenId>& out) const {
    scratch.symbols.clear();
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t end = at + base::decode_utf8(word.substr(at)).length;
      push_symbol(scratch.symbols, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end),
                  -1);
      at = end;
      ++scratch.steps;
    }
    merge_symbols(scratch, [&](const MergeSymbol& a, const MergeSymbol& b) {
      const std::optional<TokenId> id =
          vocabulary_.find_text(word.substr(a.begin, b.end - a.begin));
      return id ? std::optional(Merged{-double{vocabulary_.score(*id)}, *id}) : std::nullopt;
    });
    for (const MergeSymbol& symbol : scratch.symbols) {
      if (symbol.begin < symbol.end) emit(symbol, word, out);
    }
  }

  void emit(const MergeSymbol& symbol, std::string_view text, std::vector<TokenId>& out) const {
    const std::string_view piece = text.substr(symbol.begin, symbol.end - symbol.begin);
    if (symbol.tag >= 0) {
      out.push_back(symbol.tag);
    } else if (const std::optional<TokenId> id = vocabulary_.find_text(piece)) {
      out.push_back(*id);
    } else {
      emit_bytes(piece, out);
    }
  }

  /// All bytes of a character as byte tokens, or else one unknown token for the character.
  void emit_bytes(std::string_view character, std::vector<TokenId>& out) const {
    const std::size_t before = out.size();
    for (const char c : character) {
      const TokenId id = bytes_[static_cast<unsigned char>(c)];
      if (id < 0) {
        out.resize(before);
        if (!unknown_) {
          base::raise(ErrorKind::kBadFile,
                      "the vocabulary has no token for byte 0x{:02X} and no unknown token",
                      static_cast<unsigned char>(c));
        }
        out.push_back(*unknown_);
        return;
      }
      out.push_back(id);
    }
  }

  const Vocabulary& vocabulary_;
  std::optional<TokenId> unknown_;
  bool space_prefix_;
  BlankCuts cuts_;
  std::array<TokenId, 256> bytes_;  ///< the byte tokens, or -1
};

}  // namespace

std::unique_ptr<const Segmenter> make_sentencepiece(const Vocabulary& vocabulary,
                                                    std::optional<TokenId> unknown,
                                                    bool add_space_prefix) {
  if (!vocabulary.has_scores()) {
    base::raise(ErrorKind::kBadFile,
                "metadata 'tokenizer.ggml.scores' is missing: tokenizer model 'llama' needs it");
  }
  return std::make_unique<SentencePiece>(vocabulary, unknown, add_space_prefix);
}

}  // namespace lemma::text
