// SPDX-License-Identifier: Apache-2.0
#include "text/huggingface/ggml_vocabulary.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "base/log.hpp"
#include "base/utf8.hpp"
#include "lemma/error.hpp"
#include "text/huggingface/base64.hpp"
#include "text/huggingface/json_fields.hpp"
#include "text/huggingface/model.hpp"
#include "text/huggingface/normalizer.hpp"
#include "text/huggingface/probes.hpp"
#include "text/huggingface/splitter.hpp"
#include "text/pretokenizer.hpp"
#include "text/tokenizer.hpp"

namespace lemma::text {
namespace {

using namespace huggingface;
using weights::Metadata;
using weights::Value;

/// A folder's tokenizer, read once as JSON and once as what lemma makes of it.
struct Source {
  Json root;
  ModelTokens tokens;
  std::unique_ptr<const Tokenizer> tokenizer;
};

void add_numbers(Metadata& keys, const char* key, const std::vector<std::int32_t>& values) {
  keys.add(key, {Value::Ints(values.begin(), values.end()), "array of i32"});
}

void add_id(Metadata& keys, const char* role, std::optional<TokenId> id) {
  if (id) keys.add(std::string("tokenizer.ggml.") + role + "_token_id", {std::int64_t{*id}, "u32"});
}

/// Another end of an answer than EOS, for readers that know two.
std::optional<TokenId> second_end(const Tokenizer& tokenizer) {
  for (const TokenId id : tokenizer.end_of_generation())
    if (id != tokenizer.eos().value_or(-1)) return id;
  return {};
}

void add_roles(const Tokenizer& tokenizer, Metadata& keys) {
  const SpecialTokens& special = tokenizer.special();
  add_id(keys, "bos", special.bos);
  add_id(keys, "eos", special.eos);
  add_id(keys, "eot", special.eot ? special.eot : second_end(tokenizer));
  add_id(keys, "unknown", special.unknown);
  add_id(keys, "padding", special.padding);
  add_id(keys, "seperator", special.separator);  // GGUF's own spelling
  add_id(keys, "mask", special.mask);
  keys.add("tokenizer.ggml.add_bos_token", {tokenizer.adds_bos(), "bool"});
  keys.add("tokenizer.ggml.add_eos_token", {tokenizer.adds_eos(), "bool"});
}

/// Spellings and kinds; places that the file leaves out, up to `rows`, are unused tokens.
void add_tokens(const Source& source, std::uint64_t rows, Metadata& keys) {
  Value::Strings texts;
  std::vector<std::int32_t> kinds;
  const bool words = source.tokens.type == "WordPiece";
  for (std::uint64_t i = 0; i < rows; ++i) {
    const auto id = static_cast<TokenId>(i);
    const bool known = i < source.tokenizer->vocabulary_size();
    std::string text(known ? source.tokenizer->token_text(id) : std::string_view());
    TokenKind kind = known ? source.tokenizer->kind(id) : TokenKind::kUnused;
    if (text.empty()) {
      kind = TokenKind::kUnused;
      text = "[PAD" + std::to_string(i) + "]";
    } else if (words && kind == TokenKind::kNormal) {
      // Words begin with a blank here, and what goes on has no sign.
      text = text.starts_with("##") ? text.substr(2) : "\xE2\x96\x81" + text;
    }
    texts.push_back(std::move(text));
    kinds.push_back(static_cast<std::int32_t>(kind));
  }
  keys.add("tokenizer.ggml.tokens", {std::move(texts), "array of string"});
  add_numbers(keys, "tokenizer.ggml.token_type", kinds);
}

/// [left, right] of each merge, by rank.
std::vector<std::pair<std::string, std::string>> merges_of(const Json& root) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Json& merge : array_of(member(root, "model", "the file"), "merges", "model")) {
    if (merge.is_array() && merge.size() == 2) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      const std::size_t blank = text.find(' ', 1);
      if (blank != std::string::npos)
        merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
    }
  }
  return merges;
}

Value joined_merges(const Source& source) {
  Value::Strings merges;
  for (const auto& [left, right] : merges_of(source.root)) merges.push_back(left + " " + right);
  return {std::move(merges), "array of string"};
}

/// A score for each token that orders merges as their ranks do: the first merge that makes it.
void add_scores_of_merges(const Source& source, std::uint64_t rows, Metadata& keys) {
  std::unordered_map<std::string, std::size_t> ranks;
  const auto merges = merges_of(source.root);
  for (std::size_t i = 0; i < merges.size(); ++i)
    ranks.emplace(merges[i].first + merges[i].second, i);
  Value::Floats scores;
  for (std::uint64_t i = 0; i < rows; ++i) {
    std::size_t rank = merges.size();
    if (i < source.tokenizer->vocabulary_size())
      if (const auto found =
              ranks.find(std::string(source.tokenizer->token_text(static_cast<TokenId>(i))));
          found != ranks.end())
        rank = found->second;
    scores.push_back(-static_cast<double>(rank));
  }
  keys.add("tokenizer.ggml.scores", {std::move(scores), "array of f32"});
}

void add_scores_of_pieces(const Source& source, std::uint64_t rows, Metadata& keys) {
  std::vector<double> scores = source.tokens.scores;
  scores.resize(rows);
  for (double& score : scores) score = double{static_cast<float>(score)};
  keys.add("tokenizer.ggml.scores", {Value::Floats(scores.begin(), scores.end()), "array of f32"});
}

/// The table of a Precompiled normalizer, alone or in a sequence.
std::string charsmap_of(const Json& normalizer) {
  if (!normalizer.is_object()) return {};
  if (normalizer.value("type", "") == "Precompiled")
    return decode_base64(string_of(normalizer, "precompiled_charsmap", "normalizer"));
  if (normalizer.value("type", "") == "Sequence")
    for (const Json& step : array_of(normalizer, "normalizers", "normalizer"))
      if (std::string table = charsmap_of(step); !table.empty()) return table;
  return {};
}

/// The candidates for one tokenizer: keys that differ from those that all share.
using Candidate = std::vector<std::pair<std::string, Value>>;

Candidate named(std::string_view model) {
  return {{"tokenizer.ggml.model", {std::string(model), "string"}}};
}

/// Every set of rules once, the best known name of each first.
std::vector<Candidate> pre_tokenizers() {
  std::vector<std::string_view> order = {
      "llama-bpe", "qwen2", "qwen35",  "gpt-2",       "gpt-4o", "tekken", "deepseek-v3",
      "command-r", "glm4",  "kimi-k2", "bailingmoe2", "bloom",  "falcon"};
  for (const std::string_view name : PreTokenizer::names()) order.push_back(name);
  std::vector<Candidate> candidates;
  std::vector<const PreTokenizerRules*> seen;
  for (const std::string_view name : order) {
    const PreTokenizerRules* rules = nullptr;
    for (const PreTokenizerRules& one : pre_tokenizer_rules())
      if (one.name == name) rules = &one;
    const auto same = [&](const PreTokenizerRules* other) {
      return other->expressions.data() == rules->expressions.data() &&
             other->ignores_merges == rules->ignores_merges;
    };
    if (!rules || rules->spells_blanks || std::ranges::any_of(seen, same)) continue;
    seen.push_back(rules);
    candidates.push_back(named("gpt2"));
    candidates.back().push_back({"tokenizer.ggml.pre", {std::string(name), "string"}});
  }
  return candidates;
}

std::vector<Candidate> with_space_prefix(std::string_view model) {
  std::vector<Candidate> candidates;
  for (const bool prefix : {true, false}) {
    candidates.push_back(named(model));
    candidates.back().push_back({"tokenizer.ggml.add_space_prefix", {prefix, "bool"}});
  }
  return candidates;
}

/// What the type of tokenizer needs, added to `keys`, and the candidates to try.
std::vector<Candidate> candidates_of(const Source& source, std::uint64_t rows, Metadata& keys) {
  const Json& normalizer = member(source.root, "normalizer", "the file");
  if (source.tokens.type == "BPE") {
    const Splitter splitter(member(source.root, "pre_tokenizer", "the file"), true);
    if (splitter.ends_in_bytes()) {
      keys.add("tokenizer.ggml.merges", joined_merges(source));
      return pre_tokenizers();
    }
    add_scores_of_merges(source, rows, keys);
    std::vector<Candidate> candidates = with_space_prefix("llama");
    candidates.push_back(named("gemma4"));  // merges by rank, line by line
    candidates.back().push_back({"tokenizer.ggml.merges", joined_merges(source)});
    return candidates;
  }
  if (source.tokens.type == "Unigram") {
    add_scores_of_pieces(source, rows, keys);
    if (const std::string table = charsmap_of(normalizer); !table.empty()) {
      Value::Ints bytes;
      for (const char c : table) bytes.push_back(static_cast<signed char>(c));
      keys.add("tokenizer.ggml.precompiled_charsmap", {std::move(bytes), "array of i8"});
    }
    std::vector<Candidate> candidates = with_space_prefix("t5");
    for (const bool prefix : {true, false}) {
      candidates.push_back(candidates[prefix ? 0 : 1]);
      candidates.back().push_back({"tokenizer.ggml.remove_extra_whitespaces", {true, "bool"}});
    }
    return candidates;
  }
  if (source.tokens.type == "WordPiece") {
    keys.add("tokenizer.ggml.token_type_count", {std::int64_t{2}, "u32"});
    std::vector<Candidate> candidates = {named("bert"), named("bert")};
    candidates[1].push_back({"tokenizer.ggml.normalizer.lowercase", {false, "bool"}});
    return candidates;
  }
  return {};
}

/// The number of the first text for which the two differ, or that of all.
std::size_t agreement(const Tokenizer& expected, const Tokenizer& found,
                      const std::vector<std::string>& probes) {
  for (std::size_t i = 0; i < probes.size(); ++i)
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special = special, .parse_special = special};
      if (expected.encode(probes[i], options) != found.encode(probes[i], options)) return i;
    }
  return probes.size();
}

std::string escaped(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80);
}

/// `shared` and the first of `candidates` that gives the same ids; else why the best one does not.
GgmlVocabulary first_that_agrees(const Source& source, const Metadata& shared,
                                 const std::vector<Candidate>& candidates) {
  GgmlVocabulary result;
  const std::vector<std::string> probes =
      probe_texts(*source.tokenizer, Normalizer(member(source.root, "normalizer", "the file")));
  std::size_t best = 0;
  for (const Candidate& candidate : candidates) {
    Metadata keys = shared;
    for (const auto& [key, value] : candidate) keys.add(key, value);
    try {
      const auto tokenizer = Tokenizer::from_metadata(keys);
      const std::size_t agreed = agreement(*source.tokenizer, *tokenizer, probes);
      if (agreed == probes.size()) return {std::move(keys), {}};
      if (!result.why_not.empty() && agreed <= best) continue;
      best = agreed;
      result.why_not = "no known rules give the same ids for " + escaped(probes[agreed]);
    } catch (const Error& error) {
      if (result.why_not.empty()) result.why_not = error.what();
    }
  }
  return result;
}

}  // namespace

GgmlVocabulary ggml_vocabulary(const Metadata& metadata, std::uint64_t rows) {
  if (!metadata.has(Tokenizer::kJsonKey) || metadata.has("tokenizer.ggml.model")) return {};
  Source source;
  source.tokenizer = Tokenizer::from_metadata(metadata);
  source.root = Json::parse(metadata.string(Tokenizer::kJsonKey));
  source.tokens = read_model_tokens(member(source.root, "model", "the file"));
  const std::size_t tokens = source.tokenizer->vocabulary_size();
  if (tokens > rows)
    return {{},
            "it has " + std::to_string(tokens) + " tokens, more than the " + std::to_string(rows) +
                " rows of the embedding table"};
  Metadata keys;
  const std::vector<Candidate> candidates = candidates_of(source, rows, keys);
  if (candidates.empty()) return {{}, "GGUF has no word for type " + source.tokens.type};
  add_tokens(source, rows, keys);
  add_roles(*source.tokenizer, keys);
  return first_that_agrees(source, keys, candidates);
}

Metadata with_ggml_vocabulary(const Metadata& metadata, std::uint64_t rows) {
  GgmlVocabulary vocabulary = ggml_vocabulary(metadata, rows);
  if (!vocabulary.why_not.empty())
    base::log(base::LogLevel::kWarning,
              "the tokenizer is written as tokenizer.json alone, which other readers of GGUF do "
              "not know: {}",
              vocabulary.why_not);
  if (vocabulary.keys.pairs().empty()) return metadata;
  Metadata joined;
  for (const auto& [key, value] : metadata.pairs())
    if (!vocabulary.keys.has(key)) joined.add(key, value);
  for (const auto& [key, value] : vocabulary.keys.pairs()) joined.add(key, value);
  joined.add(std::string(Tokenizer::kJsonFirstKey), {true, "bool"});
  return joined;
}

}  // namespace lemma::text
