// SPDX-License-Identifier: Apache-2.0
#include "text/huggingface/model.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "text/blanks.hpp"
#include "text/bpe.hpp"
#include "text/byte_alphabet.hpp"
#include "text/huggingface/json_fields.hpp"
#include "text/unigram.hpp"
#include "text/wordpiece.hpp"

namespace lemma::text::huggingface {
namespace {

constexpr std::string_view kWhere = "model";

/// The type; files of old versions leave it out.
std::string type_of(const Json& model) {
  if (const auto type = optional_string(model, "type", kWhere)) return *type;
  if (!member(model, "merges", kWhere).is_null()) return "BPE";
  if (member(model, "vocab", kWhere).is_array()) return "Unigram";
  return member(model, "max_input_chars_per_word", kWhere).is_null() ? "WordLevel" : "WordPiece";
}

void read_vocabulary_object(const Json& vocabulary, ModelTokens& tokens) {
  if (!vocabulary.is_object()) wrong_type(vocabulary, "vocab", kWhere, "an object");
  // Ids may leave gaps, but not so many that the file's size does not justify them.
  const std::size_t most = vocabulary.size() * 4 + 65536;
  for (const auto& [text, id] : vocabulary.items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        static_cast<std::uint64_t>(id.get<std::int64_t>()) >= most) {
      base::raise(ErrorKind::kBadFile,
                  "tokenizer.json: model: token '{}' has id {}, expected 0 to {}", text, id.dump(),
                  most - 1);
    }
    const auto place = id.get<std::size_t>();
    if (place >= tokens.texts.size()) tokens.texts.resize(place + 1);
    if (!tokens.texts[place].empty()) {
      base::raise(ErrorKind::kBadFile, "tokenizer.json: model: tokens '{}' and '{}' share id {}",
                  tokens.texts[place], text, place);
    }
    tokens.texts[place] = text;
  }
}

void read_vocabulary_list(const Json& vocabulary, ModelTokens& tokens) {
  if (!vocabulary.is_array()) wrong_type(vocabulary, "vocab", kWhere, "an array");
  for (const Json& entry : vocabulary) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      base::raise(ErrorKind::kBadFile,
                  "tokenizer.json: model: vocab entry {} is not [piece, score]",
                  tokens.texts.size());
    }
    tokens.texts.push_back(entry[0].get<std::string>());
    tokens.scores.push_back(entry[1].get<double>());
  }
}

void refuse_dropout(const Json& model) {
  const Json& dropout = member(model, "dropout", kWhere);
  if (dropout.is_null()) return;
  if (!dropout.is_number()) wrong_type(dropout, "dropout", kWhere, "a number");
  if (dropout.get<double>() > 0) {
    base::raise(
        ErrorKind::kUnsupported,
        "tokenizer.json: model: a dropout of {} makes ids a matter of chance; set it to null",
        dropout.dump());
  }
}

class BpeModel final : public Model {
 public:
  BpeModel(const Json& json, const ModelTokens& tokens, const Vocabulary& vocabulary, bool bytes)
      : bytes_(bytes), bpe_(options_of(json, tokens, bytes), vocabulary.size()) {
    refuse_dropout(json);
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const std::string& text = vocabulary.text(id);
      if (vocabulary.kind(id) == TokenKind::kByte) {
        bpe_.add_byte_token(*byte_of_spelling(text), id);
      } else if (i < tokens.texts.size() && vocabulary.find_text(text) == id) {
        add_token(text, id);
      }
    }
    std::size_t rank = 0;
    for (const Json& merge : array_of(json, "merges", kWhere)) add_merge(merge, rank++);
    bpe_.finish();
    const bool whole_words = boolean_or(json, "ignore_merges", kWhere, false);
    // Without an unknown token, what is dropped makes neighbours of what stood apart.
    cuts_at_blanks_ = !bytes && !whole_words && tokens.unknown && !has_affixes(json) &&
                      bpe_.has_token(kSpeltBlank);
  }

  void encode_piece(std::string_view piece, EncodeScratch& scratch,
                    std::vector<TokenId>& out) const override {
    if (!cuts_at_blanks_) {
      bpe_.encode_word(piece, scratch, out);
      return;
    }
    encode_between_blanks(piece, cuts_,
                          [&](std::string_view word) { bpe_.encode_word(word, scratch, out); });
  }

 private:
  static bool has_affixes(const Json& json) {
    return !optional_string(json, "continuing_subword_prefix", kWhere).value_or("").empty() ||
           !optional_string(json, "end_of_word_suffix", kWhere).value_or("").empty();
  }

  static BpeOptions options_of(const Json& json, const ModelTokens& tokens, bool bytes) {
    BpeOptions options;
    options.by_bytes = bytes;
    options.ignore_merges = boolean_or(json, "ignore_merges", kWhere, false);
    options.byte_fallback = tokens.byte_fallback;
    options.unknown = tokens.unknown;
    options.drops_before_merging = true;
    options.fuse_unknown = boolean_or(json, "fuse_unk", kWhere, false);
    options.prefix = optional_string(json, "continuing_subword_prefix", kWhere).value_or("");
    options.suffix = optional_string(json, "end_of_word_suffix", kWhere).value_or("");
    return options;
  }

  void add_token(std::string_view text, TokenId id) {
    if (!bytes_) {
      bpe_.add_token(text, id);
      cuts_.add(text);
      return;
    }
    // A spelling outside the alphabet is no bytes, and nothing that merges can give.
    bool spells_bytes = true;
    for (std::size_t at = 0; at < text.size();) {
      const base::Decoded c = base::decode_utf8(text.substr(at));
      spells_bytes = spells_bytes && byte_of_letter(c.code_point).has_value();
      at += c.length;
    }
    if (spells_bytes) bpe_.add_token(bytes_of_spelling(text), id);
  }

  void add_merge(const Json& merge, std::size_t rank) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const std::string both = merge.get<std::string>();
      const std::size_t blank = both.find(' ');
      if (blank != std::string::npos) {
        left = both.substr(0, blank);
        right = both.substr(blank + 1);
      }
    }
    if (left.empty() || right.empty()) {
      base::raise(ErrorKind::kBadFile, "tokenizer.json: model: merge {} is {}, expected two parts",
                  rank, merge.dump());
    }
    if (bytes_) {
      bpe_.add_merge(bytes_of_spelling(left), bytes_of_spelling(right), rank);
    } else {
      bpe_.add_merge(left, right, rank);
      cuts_.add(left + right);
    }
  }

  bool bytes_;
  Bpe bpe_;
  BlankCuts cuts_;
  bool cuts_at_blanks_ = false;
};

class UnigramModel final : public Model {
 public:
  UnigramModel(const ModelTokens& tokens, const Vocabulary& vocabulary) : model_(tokens.unknown) {
    for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      model_.see_score(tokens.scores[i]);
      if (vocabulary.kind(id) == TokenKind::kByte) {
        model_.add_byte_token(*byte_of_spelling(tokens.texts[i]), id);
      } else if (vocabulary.find_text(tokens.texts[i]) == id) {
        model_.add_piece(tokens.texts[i], id, tokens.scores[i]);
        cuts_.add(tokens.texts[i]);
      }
    }
    cuts_at_blanks_ = vocabulary.find_text(kSpeltBlank).has_value();
  }

  void encode_piece(std::string_view piece, EncodeScratch& scratch,
                    std::vector<TokenId>& out) const override {
    if (!cuts_at_blanks_) {
      model_.encode(piece, scratch, out);
      return;
    }
    encode_between_blanks(piece, cuts_,
                          [&](std::string_view word) { model_.encode(word, scratch, out); });
  }

 private:
  Unigram model_;
  BlankCuts cuts_;
  bool cuts_at_blanks_ = false;
};

class WordPieceModel final : public Model {
 public:
  WordPieceModel(const Json& json, const ModelTokens& tokens, const Vocabulary& vocabulary)
      : model_(tokens.unknown, most_characters(json)) {
    const std::string prefix =
        optional_string(json, "continuing_subword_prefix", kWhere).value_or("##");
    for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const std::string_view text = tokens.texts[i];
      if (vocabulary.find_text(text) != id) continue;
      model_.add_start(text, id);
      if (text.starts_with(prefix)) model_.add_rest(text.substr(prefix.size()), id);
    }
  }

  void encode_piece(std::string_view piece, EncodeScratch& scratch,
                    std::vector<TokenId>& out) const override {
    model_.encode_word(piece, scratch, out);
  }

 private:
  static std::size_t most_characters(const Json& json) {
    if (member(json, "max_input_chars_per_word", kWhere).is_null()) return 100;
    return static_cast<std::size_t>(number_of(json, "max_input_chars_per_word", kWhere));
  }

  WordPiece model_;
};

class WordLevelModel final : public Model {
 public:
  WordLevelModel(const ModelTokens& tokens, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), unknown_(tokens.unknown) {}

  void encode_piece(std::string_view piece, EncodeScratch& scratch,
                    std::vector<TokenId>& out) const override {
    scratch.merge.steps += piece.size();
    if (const std::optional<TokenId> id = vocabulary_.find_text(piece)) {
      out.push_back(*id);
    } else if (unknown_) {
      out.push_back(*unknown_);
    } else {
      base::raise(ErrorKind::kBadFile, "the vocabulary has no word '{}' and no unknown token",
                  base::repair_utf8(piece.substr(0, 100)));
    }
  }

 private:
  const Vocabulary& vocabulary_;
  std::optional<TokenId> unknown_;
};

std::optional<TokenId> find_unknown(const Json& model, const ModelTokens& tokens) {
  if (tokens.type == "Unigram") {
    if (member(model, "unk_id", kWhere).is_null()) return std::nullopt;
    const TokenId id = number_of(model, "unk_id", kWhere);
    if (static_cast<std::size_t>(id) >= tokens.texts.size()) {
      base::raise(ErrorKind::kBadFile, "tokenizer.json: model: unk_id {} is outside {} pieces", id,
                  tokens.texts.size());
    }
    return id;
  }
  const auto text = optional_string(model, "unk_token", kWhere);
  if (!text) return std::nullopt;
  const auto found = std::find(tokens.texts.begin(), tokens.texts.end(), *text);
  if (found == tokens.texts.end()) return std::nullopt;  // then text that needs it is an error
  return static_cast<TokenId>(found - tokens.texts.begin());
}

}  // namespace

ModelTokens read_model_tokens(const Json& model) {
  ModelTokens tokens;
  tokens.type = type_of(model);
  const Json& vocabulary = member(model, "vocab", kWhere);
  if (tokens.type == "Unigram") {
    read_vocabulary_list(vocabulary, tokens);
  } else if (tokens.type == "BPE" || tokens.type == "WordPiece" || tokens.type == "WordLevel") {
    read_vocabulary_object(vocabulary, tokens);
  } else {
    unknown_type(tokens.type, kWhere, "BPE, Unigram, WordLevel, WordPiece");
  }
  tokens.unknown = find_unknown(model, tokens);
  tokens.byte_fallback = boolean_or(model, "byte_fallback", kWhere, false);
  return tokens;
}

std::unique_ptr<const Model> make_model(const Json& model, const ModelTokens& tokens,
                                        const Vocabulary& vocabulary, bool bytes) {
  if (tokens.type == "BPE") {
    return std::make_unique<const BpeModel>(model, tokens, vocabulary, bytes);
  }
  if (tokens.type == "Unigram") return std::make_unique<const UnigramModel>(tokens, vocabulary);
  if (tokens.type == "WordPiece") {
    return std::make_unique<const WordPieceModel>(model, tokens, vocabulary);
  }
  return std::make_unique<const WordLevelModel>(tokens, vocabulary);
}

}  // namespace lemma::text::huggingface
