// SPDX-License-Identifier: Apache-2.0
// `tokenizer.ggml.model = bert`. GGUF spells a piece that begins a word with U+2581 in front, and
// one that goes on inside a word plainly (BERT's own files write ## before the latter).
#include "text/bert_text.hpp"
#include "text/blanks.hpp"
#include "text/segmenter.hpp"
#include "text/wordpiece.hpp"

namespace lemma::text {
namespace {

// BERT's own program takes words of more than 100 characters for unknown; the engines that read
// GGUF do not, and their ids are what its users compare with.
constexpr std::size_t kMostCharacters = static_cast<std::size_t>(-1);

class Bert final : public Segmenter {
 public:
  Bert(const weights::Metadata& metadata, const Vocabulary& vocabulary,
       std::optional<TokenId> unknown)
      : vocabulary_(vocabulary), model_(unknown, kMostCharacters) {
    rules_.white_space_first = true;
    rules_.lowercase = metadata.boolean_or("tokenizer.ggml.normalizer.lowercase", true);
    const bool strip =
        metadata.boolean_or("tokenizer.ggml.normalizer.strip_accents", rules_.lowercase);
    rules_.accents = strip ? Accents::kFirstOnly : Accents::kKeep;
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const std::string_view text = vocabulary.text(id);
      if (vocabulary.find_text(text) != id) continue;
      if (text.starts_with(kSpeltBlank)) {
        model_.add_start(text.substr(kSpeltBlank.size()), id);
      } else {
        model_.add_rest(text, id);
      }
    }
  }

  void encode(std::string_view text, Stretch /*stretch*/, EncodeScratch& scratch,
              std::vector<TokenId>& out) const override {
    scratch.merge.steps += text.size();
    for_each_bert_word(normalize_bert_text(text, rules_),
                       [&](std::string_view word) { model_.encode_word(word, scratch, out); });
  }

  /// Words show a blank in front, but not the signs that end a clause.
  void decode(TokenId id, std::string& out) const override {
    const std::string text = read_blanks(vocabulary_.text(id));
    const bool sign = text == " ." || text == " ," || text == " ?" || text == " !";
    out += sign ? text.substr(1) : text;
  }

 private:
  const Vocabulary& vocabulary_;
  WordPiece model_;
  BertTextRules rules_;
};

}  // namespace

std::unique_ptr<const Segmenter> make_wordpiece(const weights::Metadata& metadata,
                                                const Vocabulary& vocabulary,
                                                std::optional<TokenId> unknown) {
  return std::make_unique<Bert>(metadata, vocabulary, unknown);
}

}  // namespace lemma::text
