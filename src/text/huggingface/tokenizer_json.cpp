// SPDX-License-Identifier: Apache-2.0
// A tokenizer out of a tokenizer.json (and tokenizer_config.json): the parts in the order in which
// text passes them. Special tokens, and added tokens that are not to be normalized, are cut out of
// the raw text by Tokenizer; the others out of the normalized text, here; what is left is cut by
// the splitter and turned into ids by the model. The post-processor only says what stands around.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/raise.hpp"
#include "text/huggingface/decoder.hpp"
#include "text/huggingface/json_fields.hpp"
#include "text/huggingface/model.hpp"
#include "text/huggingface/normalizer.hpp"
#include "text/huggingface/splitter.hpp"
#include "text/tokenizer_parts.hpp"

namespace lemma::text::huggingface {
namespace {

struct AddedToken {
  TokenId id;
  std::string text;
  MatchRules rules;
  bool normalized, special;
};

/// Special tokens are always looked for in the raw text, where it is known which parts of it a user
/// wrote: what a normalizer makes of a user's text must not become one.
bool is_cut_raw(const AddedToken& token) {
  return token.special || !token.normalized;
}

std::vector<AddedToken> read_added_tokens(const Json& root) {
  constexpr std::string_view kWhere = "added_tokens";
  std::vector<AddedToken> tokens;
  for (const Json& json : array_of(root, "added_tokens", "the file")) {
    AddedToken token;
    token.id = number_of(json, "id", kWhere);
    token.text = string_of(json, "content", kWhere);
    token.rules = {.single_word = boolean_or(json, "single_word", kWhere, false),
                   .strips_left = boolean_or(json, "lstrip", kWhere, false),
                   .strips_right = boolean_or(json, "rstrip", kWhere, false)};
    token.special = boolean_or(json, "special", kWhere, false);
    token.normalized = boolean_or(json, "normalized", kWhere, !token.special);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// All tokens with their kinds.
std::unique_ptr<Vocabulary> make_vocabulary(const ModelTokens& model,
                                            const std::vector<AddedToken>& added) {
  std::vector<std::string> texts = model.texts;
  const std::size_t most = texts.size() + added.size() * 4 + 65536;
  for (const AddedToken& token : added) {
    const auto place = static_cast<std::size_t>(token.id);
    if (place >= most) {
      base::raise(ErrorKind::kBadFile,
                  "tokenizer.json: added token '{}' has id {}, far outside {} tokens", token.text,
                  token.id, texts.size());
    }
    if (place >= texts.size()) texts.resize(place + 1);
    texts[place] = token.text;
  }
  if (texts.empty()) base::raise(ErrorKind::kBadFile, "tokenizer.json: the vocabulary is empty");
  std::vector<TokenKind> kinds(texts.size(), TokenKind::kNormal);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) kinds[i] = TokenKind::kUnused;
    if (model.byte_fallback && byte_of_spelling(texts[i])) kinds[i] = TokenKind::kByte;
  }
  for (const AddedToken& token : added) {
    kinds[static_cast<std::size_t>(token.id)] =
        token.special ? TokenKind::kControl : TokenKind::kUserDefined;
  }
  if (model.unknown) kinds[static_cast<std::size_t>(*model.unknown)] = TokenKind::kUnknown;
  std::vector<float> scores(model.scores.begin(), model.scores.end());
  if (!scores.empty()) scores.resize(texts.size());
  return std::make_unique<Vocabulary>(std::move(texts), std::move(kinds), std::move(scores));
}

class Pipeline final : public Segmenter {
 public:
  Pipeline(const Json& root, const ModelTokens& tokens, const std::vector<AddedToken>& added,
           const Vocabulary& vocabulary)
      : normalizer_(member(root, "normalizer", "the file")),
        splitter_(member(root, "pre_tokenizer", "the file"), tokens.type == "BPE"),
        model_(make_model(member(root, "model", "the file"), tokens, vocabulary,
                          splitter_.ends_in_bytes())) {
    const Decoder decoder(member(root, "decoder", "the file"));
    drops_first_blank_ = decoder.drops_first_blank();
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
      pieces_.push_back(decoder.piece(vocabulary.text(static_cast<TokenId>(i))));
    }
    for (const AddedToken& token : added) {
      if (is_cut_raw(token)) continue;
      normalized_tokens_.add(normalizer_.run(token.text), token.id, token.rules);
    }
  }

  void encode(std::string_view text, Stretch stretch, EncodeScratch& scratch,
              std::vector<TokenId>& out) const override {
    std::string normalized;
    if (!normalizer_.empty()) {
      scratch.merge.steps += text.size();
      normalized = normalizer_.run(std::string(text));
      text = normalized;
    }
    for (std::size_t at = 0; at < text.size();) {
      const std::optional<TokenMatcher::Match> match =
          normalized_tokens_.empty() ? std::nullopt : normalized_tokens_.find(text, at);
      const std::size_t stop = match ? match->begin : text.size();
      if (stop > at) {
        encode_plain(text.substr(at, stop - at), stretch.at_start && at == 0, scratch, out);
      }
      if (!match) break;
      out.push_back(match->id);
      at = match->end;
    }
  }

  void decode(TokenId id, std::string& out) const override {
    out += pieces_[static_cast<std::size_t>(id)];
  }

  bool drops_first_blank() const noexcept { return drops_first_blank_; }

 private:
  void encode_plain(std::string_view text, bool at_start, EncodeScratch& scratch,
                    std::vector<TokenId>& out) const {
    if (splitter_.empty()) {
      model_->encode_piece(text, scratch, out);
      return;
    }
    Pieces pieces;
    pieces.text = text;
    pieces.list.push_back({0, static_cast<std::uint32_t>(text.size()), at_start});
    pieces.scratch = &scratch.split;
    splitter_.run(pieces);
    for (const Piece& piece : pieces.list) {
      if (piece.begin < piece.end) {
        model_->encode_piece(pieces.text.substr(piece.begin, piece.end - piece.begin), scratch,
                             out);
      }
    }
  }

  Normalizer normalizer_;
  Splitter splitter_;
  std::unique_ptr<const Model> model_;
  TokenMatcher normalized_tokens_;
  std::vector<std::string> pieces_;
  bool drops_first_blank_ = false;
};

TokenId checked_id(std::int64_t id, const Vocabulary& vocabulary) {
  if (id < 0 || static_cast<std::uint64_t>(id) >= vocabulary.size()) {
    base::raise(ErrorKind::kBadFile, "tokenizer.json: post_processor: id {} is outside {} tokens",
                id, vocabulary.size());
  }
  return static_cast<TokenId>(id);
}

/// TemplateProcessing: the tokens before and behind the sequence.
void read_template(const Json& json, const Vocabulary& vocabulary, SpecialRules& rules) {
  constexpr std::string_view kWhere = "post_processor";
  const Json& specials = member(json, "special_tokens", kWhere);
  bool behind = false;
  for (const Json& item : array_of(json, "single", kWhere)) {
    if (!member(item, "Sequence", kWhere).is_null()) {
      behind = true;
      continue;
    }
    const std::string name = string_of(member(item, "SpecialToken", kWhere), "id", kWhere);
    for (const Json& id : array_of(member(specials, name, kWhere), "ids", kWhere)) {
      if (!id.is_number_integer()) wrong_type(id, "ids", kWhere, "whole numbers");
      (behind ? rules.after : rules.before)
          .push_back(checked_id(id.get<std::int64_t>(), vocabulary));
    }
  }
}

/// BertProcessing and RobertaProcessing: [token, id] pairs.
TokenId paired_id(const Json& json, std::string_view name, const Vocabulary& vocabulary) {
  const Json& pair = member(json, name, "post_processor");
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_integer()) {
    wrong_type(pair, name, "post_processor", "a token and its id");
  }
  return checked_id(pair[1].get<std::int64_t>(), vocabulary);
}

void read_post_processor(const Json& json, const Vocabulary& vocabulary, SpecialRules& rules,
                         int depth) {
  constexpr std::string_view kWhere = "post_processor";
  if (json.is_null()) return;
  if (depth > 20) base::raise(ErrorKind::kBadFile, "tokenizer.json: post-processors nest too deep");
  const std::string type = string_of(json, "type", kWhere);
  if (type == "Sequence") {
    for (const Json& step : array_of(json, "processors", kWhere)) {
      read_post_processor(step, vocabulary, rules, depth + 1);
    }
  } else if (type == "TemplateProcessing") {
    read_template(json, vocabulary, rules);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    rules.before.insert(rules.before.begin(), paired_id(json, "cls", vocabulary));
    rules.after.push_back(paired_id(json, "sep", vocabulary));
  } else if (type != "ByteLevel") {
    unknown_type(type, kWhere,
                 "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
  }
}

/// A role in tokenizer_config.json: a string, or an object with the string as "content".
std::optional<TokenId> role_of(const Json& config, std::string_view name,
                               const Vocabulary& vocabulary) {
  if (!config.is_object()) return std::nullopt;
  const Json* value = &member(config, name, "tokenizer_config.json");
  if (value->is_object()) value = &member(*value, "content", name);
  if (!value->is_string()) return std::nullopt;
  return vocabulary.find(value->get_ref<const std::string&>());
}

SpecialRules read_rules(const Json& root, const Json& config, Vocabulary& vocabulary,
                        std::optional<TokenId> unknown) {
  SpecialRules rules;
  read_post_processor(member(root, "post_processor", "the file"), vocabulary, rules, 0);
  SpecialTokens& tokens = rules.tokens;
  tokens.bos = role_of(config, "bos_token", vocabulary);
  tokens.eos = role_of(config, "eos_token", vocabulary);
  tokens.unknown = unknown ? unknown : role_of(config, "unk_token", vocabulary);
  tokens.padding = role_of(config, "pad_token", vocabulary);
  tokens.separator = role_of(config, "sep_token", vocabulary);
  tokens.mask = role_of(config, "mask_token", vocabulary);
  // Without a configuration, what the post-processor puts in front is the only hint.
  if (!tokens.bos && !rules.before.empty()) tokens.bos = rules.before.front();
  rules.end_of_generation = settle_special_tokens(tokens, vocabulary, {});
  // The older classes of the reference build their post-processor from this flag.
  if (rules.before.empty() && tokens.bos && config.is_object() &&
      member(root, "post_processor", "the file").is_null() &&
      boolean_or(config, "add_bos_token", "tokenizer_config.json", false)) {
    rules.before.push_back(*tokens.bos);
  }
  rules.adds_bos = tokens.bos && !rules.before.empty() && rules.before.front() == *tokens.bos;
  rules.adds_eos = tokens.eos && !rules.after.empty() && rules.after.back() == *tokens.eos;
  return rules;
}

/// eos_token_id of a generation_config.json: one id, or a list of those that end an answer. One
/// that the vocabulary lacks can never be chosen and ends nothing.
void add_ends(const Json& generation, const Vocabulary& vocabulary, SpecialRules& rules) {
  constexpr std::string_view kWhere = "generation_config.json", kName = "eos_token_id";
  const Json& given = member(generation, kName, kWhere);
  if (given.is_null()) return;
  const Json list = given.is_array() ? given : Json::array({given});
  std::vector<TokenId>& ends = rules.end_of_generation;
  for (const Json& id : list) {
    if (!id.is_number_integer()) wrong_type(given, kName, kWhere, "a token id or a list of them");
    const auto number = id.get<std::int64_t>();
    if (number < 0 || static_cast<std::uint64_t>(number) >= vocabulary.size()) continue;
    ends.push_back(static_cast<TokenId>(number));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

Json parse(std::string_view text, std::string_view file) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    base::raise(ErrorKind::kBadFile, "{} is not a JSON object", file);
  }
  return json;
}

void refuse_overrides(const TokenizerOverrides& overrides) {
  if (overrides.pre || overrides.add_space_prefix) {
    base::raise(ErrorKind::kUsage, "a tokenizer.json carries its own {}: it cannot be chosen",
                overrides.pre ? "pre-tokenizer" : "rule about a blank in front");
  }
}

}  // namespace
}  // namespace lemma::text::huggingface

namespace lemma::text {

TokenizerParts parts_from_json(std::string_view json, std::string_view config,
                               std::string_view generation, const TokenizerOverrides& overrides) {
  using namespace huggingface;
  refuse_overrides(overrides);
  const Json root = parse(json, "tokenizer.json");
  const Json settings = config.empty() ? Json() : parse(config, "tokenizer_config.json");
  const ModelTokens tokens = read_model_tokens(member(root, "model", "the file"));
  const std::vector<AddedToken> added = read_added_tokens(root);
  TokenizerParts parts;
  parts.model = tokens.type;
  parts.vocabulary = make_vocabulary(tokens, added);
  parts.special = read_rules(root, settings, *parts.vocabulary, tokens.unknown);
  if (!generation.empty())
    add_ends(parse(generation, "generation_config.json"), *parts.vocabulary, parts.special);
  auto pipeline = std::make_unique<const Pipeline>(root, tokens, added, *parts.vocabulary);
  parts.decodes_special = true;
  parts.space_prefix = pipeline->drops_first_blank();
  parts.segmenter = std::move(pipeline);
  for (const AddedToken& token : added) {
    if (!is_cut_raw(token)) continue;
    parts.all_special.add(token.text, token.id, token.rules);
    if (!token.special) parts.user_defined.add(token.text, token.id, token.rules);
  }
  return parts;
}

}  // namespace lemma::text
