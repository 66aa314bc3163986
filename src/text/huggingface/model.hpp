// SPDX-License-Identifier: Apache-2.0
// The model of a tokenizer.json: what turns a piece of text into ids. Reading happens in two steps,
// since the kinds of tokens depend on more than the model: first the list of tokens, then, when all
// kinds are settled, the tables. Immutable once made.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/segmenter.hpp"
#include "text/vocabulary.hpp"

namespace lemma::text::huggingface {

class Model {
 public:
  virtual ~Model() = default;
  virtual void encode_piece(std::string_view piece, EncodeScratch& scratch,
                            std::vector<TokenId>& out) const = 0;
};

/// The list of tokens as the file has it.
struct ModelTokens {
  std::string type;                ///< BPE, Unigram, WordPiece or WordLevel
  std::vector<std::string> texts;  ///< by id; places that the file leaves out are empty
  std::vector<double> scores;      ///< Unigram only
  std::optional<TokenId> unknown;
  bool byte_fallback = false;  ///< tokens <0xNN> stand for bytes
};

ModelTokens read_model_tokens(const nlohmann::json& model);

/// `bytes`: pieces are bytes and the vocabulary spells them in GPT-2's alphabet (BPE only).
std::unique_ptr<const Model> make_model(const nlohmann::json& model, const ModelTokens& tokens,
                                        const Vocabulary& vocabulary, bool bytes);

}  // namespace lemma::text::huggingface
