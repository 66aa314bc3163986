// SPDX-License-Identifier: Apache-2.0
// `tokenizer.ggml.model = t5`: SentencePiece's unigram model with the normalization table that the
// file carries, if any.
#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "text/blanks.hpp"
#include "text/charsmap.hpp"
#include "text/segmenter.hpp"
#include "text/unigram.hpp"

namespace lemma::text {
namespace {

constexpr std::string_view kCharsmapKey = "tokenizer.ggml.precompiled_charsmap";

std::string read_charsmap(const weights::Metadata& metadata) {
  const weights::Value* value = metadata.find(kCharsmapKey);
  if (!value) return {};
  const auto* numbers = std::get_if<weights::Value::Ints>(&value->data);
  if (!numbers) {
    base::raise(ErrorKind::kBadFile, "metadata '{}' is {}, expected an array of bytes",
                kCharsmapKey, value->type_name);
  }
  std::string bytes;
  bytes.reserve(numbers->size());
  for (const std::int64_t number : *numbers) {
    if (number < -128 || number > 255) {
      base::raise(ErrorKind::kBadFile, "metadata '{}' holds {}, expected bytes", kCharsmapKey,
                  number);
    }
    bytes += static_cast<char>(static_cast<unsigned char>(number & 0xff));
  }
  return bytes;
}

class SentencePieceUnigram final : public Segmenter {
 public:
  SentencePieceUnigram(const weights::Metadata& metadata, const Vocabulary& vocabulary,
                       std::optional<TokenId> unknown, bool space_prefix)
      : vocabulary_(vocabulary),
        model_(unknown),
        charsmap_(read_charsmap(metadata)),
        space_prefix_(space_prefix),
        merges_blanks_(metadata.boolean_or("tokenizer.ggml.remove_extra_whitespaces", false)) {
    for (std::size_t i = 0; i < vocabulary.size(); ++i) add_piece(static_cast<TokenId>(i));
  }

  void encode(std::string_view text, Stretch stretch, EncodeScratch& scratch,
              std::vector<TokenId>& out) const override {
    scratch.merge.steps += text.size();
    const std::string spelt = normalized(text, space_prefix_ && stretch.after_special);
    encode_between_blanks(spelt, cuts_,
                          [&](std::string_view word) { model_.encode(word, scratch, out); });
  }

  void decode(TokenId id, std::string& out) const override {
    const std::string_view text = vocabulary_.text(id);
    if (vocabulary_.kind(id) == TokenKind::kByte) {
      out += static_cast<char>(*byte_of_spelling(text));
    } else {
      out += read_blanks(text);
    }
  }

 private:
  void add_piece(TokenId id) {
    const std::string& text = vocabulary_.text(id);
    const TokenKind kind = vocabulary_.kind(id);
    if (kind == TokenKind::kNormal) model_.see_score(vocabulary_.score(id));
    if (kind == TokenKind::kByte) {
      const std::optional<unsigned char> byte = byte_of_spelling(text);
      if (!byte) {
        base::raise(ErrorKind::kBadFile, "token {} is a byte token spelt '{}', expected <0xNN>", id,
                    text);
      }
      model_.add_byte_token(*byte, id);
    }
    if (vocabulary_.find_text(text) != id) return;
    model_.add_piece(text, id, kind == TokenKind::kUserDefined ? 0 : vocabulary_.score(id));
    cuts_.add(text);
  }

  /// The text after the table's replacements, blanks spelt U+2581, runs of them merged if the file
  /// says so, with one in front if `prefix`.
  std::string normalized(std::string_view text, bool prefix) const {
    std::string out;
    out.reserve(text.size() + text.size() / 2 + kSpeltBlank.size());
    // Merged blanks show in front of the word behind them, and at the start only as the prefix.
    bool pending = prefix && merges_blanks_;
    if (prefix && !merges_blanks_ && !text.empty()) out += kSpeltBlank;
    const auto append = [&](std::string_view bytes) {
      for (const char c : bytes) {
        if (c == ' ') {
          if (!merges_blanks_) {
            out += kSpeltBlank;
          } else if (!out.empty()) {
            pending = true;
          }
          continue;
        }
        if (pending) out += kSpeltBlank;
        pending = false;
        out += c;
      }
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::optional<Charsmap::Found> found = charsmap_.longest(text.substr(at));
      if (found) {
        append(found->replacement);
        at += found->length;
        continue;
      }
      const std::size_t length = base::decode_utf8(text.substr(at)).length;
      append(text.substr(at, length));
      at += length;
    }
    return out;
  }

  const Vocabulary& vocabulary_;
  Unigram model_;
  Charsmap charsmap_;
  BlankCuts cuts_;
  bool space_prefix_;
  bool merges_blanks_;
};

}  // namespace

std::unique_ptr<const Segmenter> make_unigram(const weights::Metadata& metadata,
                                              const Vocabulary& vocabulary,
                                              std::optional<TokenId> unknown,
                                              bool add_space_prefix) {
  if (!vocabulary.has_scores()) {
    base::raise(ErrorKind::kBadFile,
                "metadata 'tokenizer.ggml.scores' is missing: tokenizer model 't5' needs it");
  }
  return std::make_unique<SentencePieceUnigram>(metadata, vocabulary, unknown, add_space_prefix);
}

}  // namespace lemma::text
