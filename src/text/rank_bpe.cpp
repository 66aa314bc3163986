// SPDX-License-Identifier: Apache-2.0
// `tokenizer.ggml.model = gpt2`: the pre-tokenizer cuts words, `tokenizer.ggml.merges` ranks the
// merges. Byte-level vocabularies spell bytes in GPT-2's alphabet and are translated to plain bytes
// once, at load. Gemma 4 and its like merge characters of a text whose blanks are spelt U+2581.
#include <limits>

#include "base/raise.hpp"
#include "text/blanks.hpp"
#include "text/bpe.hpp"
#include "text/byte_alphabet.hpp"
#include "text/segmenter.hpp"

namespace lemma::text {
namespace {

constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

BpeOptions options_of(const PreTokenizerRules& rules) {
  BpeOptions options;
  options.by_bytes = !rules.spells_blanks;
  options.ignore_merges = rules.ignores_merges;
  options.byte_fallback = rules.spells_blanks;
  return options;
}

class RankBpe final : public Segmenter {
 public:
  RankBpe(const weights::Metadata& metadata, const Vocabulary& vocabulary, std::string_view pre)
      : vocabulary_(vocabulary),
        pre_(PreTokenizer::named(pre)),
        bpe_(options_of(pre_.rules()), vocabulary.size()) {
    pieces_.reserve(vocabulary.size());
    for (std::size_t i = 0; i < vocabulary.size(); ++i) add_piece(static_cast<TokenId>(i));
    const std::vector<std::string>& merges = metadata.strings(kMergesKey);
    if (merges.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
      base::raise(ErrorKind::kBadFile, "metadata '{}' has {} entries, more than ranks can count",
                  kMergesKey, merges.size());
    }
    for (std::size_t rank = 0; rank < merges.size(); ++rank) add_merge(merges[rank], rank);
    bpe_.finish();
  }

  void encode(std::string_view text, Stretch /*stretch*/, EncodeScratch& scratch,
              std::vector<TokenId>& out) const override {
    std::string spelt;
    if (pre_.rules().spells_blanks) {
      spelt = spell_blanks(text);
      text = spelt;
    }
    scratch.ends.clear();
    pre_.split(text, scratch.split, scratch.ends);
    std::size_t begin = 0;
    for (const std::uint32_t end : scratch.ends) {
      encode_word(text.substr(begin, end - begin), scratch, out);
      begin = end;
    }
  }

  void decode(TokenId id, std::string& out) const override { out += pieces_[id]; }

 private:
  std::string plain(std::string_view spelling) const {
    return pre_.rules().spells_blanks ? std::string(spelling) : bytes_of_spelling(spelling);
  }

  void add_piece(TokenId id) {
    const std::string& text = vocabulary_.text(id);
    if (vocabulary_.kind(id) == TokenKind::kByte) {
      const std::optional<unsigned char> byte = byte_of_spelling(text);
      if (!byte) {
        base::raise(ErrorKind::kBadFile, "token {} is a byte token spelt '{}', expected <0xNN>", id,
                    text);
      }
      pieces_.emplace_back(1, static_cast<char>(*byte));
      if (pre_.rules().spells_blanks) bpe_.add_byte_token(*byte, id);
      return;
    }
    const std::string bytes = plain(text);
    // Only what text may become takes part in merging: never a control or unknown token.
    if (vocabulary_.find_text(text) == id) {
      bpe_.add_token(bytes, id);
      blanks_.add(bytes);
    }
    pieces_.push_back(pre_.rules().spells_blanks ? read_blanks(bytes) : bytes);
  }

  void add_merge(const std::string& merge, std::size_t rank) {
    // The first character belongs to the left part even if it is a blank.
    const std::size_t blank = merge.find(' ', 1);
    if (blank == std::string::npos || blank + 1 == merge.size()) {
      base::raise(ErrorKind::kBadFile, "metadata '{}': entry {} is '{}', expected two parts",
                  kMergesKey, rank, merge);
    }
    const std::string_view both = merge;
    const std::string left = plain(both.substr(0, blank)), right = plain(both.substr(blank + 1));
    bpe_.add_merge(left, right, rank);
    blanks_.add(left + right);
  }

  /// In Gemma's vocabulary runs of line ends are tokens that no merge builds.
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const {
    if (pre_.rules().spells_blanks && word[0] == '\n') {
      if (const std::optional<TokenId> id = vocabulary_.find_text(word)) {
        out.push_back(*id);
        return;
      }
    }
    if (!pre_.rules().spells_blanks) {
      bpe_.encode_word(word, scratch, out);
      return;
    }
    encode_between_blanks(word, blanks_,
                          [&](std::string_view part) { bpe_.encode_word(part, scratch, out); });
  }

  const Vocabulary& vocabulary_;
  const PreTokenizer& pre_;
  Bpe bpe_;
  BlankCuts blanks_;
  std::vector<std::string> pieces_;  ///< [V] the bytes of each token
};

}  // namespace

std::unique_ptr<const Segmenter> make_rank_bpe(const weights::Metadata& metadata,
                                               const Vocabulary& vocabulary, std::string_view pre) {
  return std::make_unique<RankBpe>(metadata, vocabulary, pre);
}

}  // namespace lemma::text
