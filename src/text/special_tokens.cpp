// SPDX-License-Identifier: Apache-2.0
#include "text/special_tokens.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "base/raise.hpp"

namespace lemma::text {
namespace {

using Ids = std::optional<TokenId>;

// Spellings of published vocabularies whose files often name only one of several ends: Llama 3,
// ChatML (Qwen), Phi, Gemma, DeepSeek and Granite, Kimi, gpt-oss, SmolVLM.
constexpr std::array<std::string_view, 9> kEndOfTurn = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",     "<turn|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<end_of_utterance>"};
constexpr std::array<std::string_view, 8> kEndOfText = {
    "<|endoftext|>", "<|end_of_text|>", "<eos>",    "[EOS]",
    "</s>",          "<|return|>",      "<|call|>", "<|tool_response>"};
constexpr std::array<std::string_view, 1> kEndOfMessage = {"<|eom_id|>"};
// Code models end a fill-in-the-middle answer with these.
constexpr std::array<std::string_view, 7> kEndOfFill = {
    "<|fim_pad|>",  "<fim-pad>",    "<fim_pad>", "<|repo_name|>",
    "<|fim_repo|>", "<|file_sep|>", "<file_sep>"};

Ids read_id(const weights::Metadata& metadata, std::string_view key, const Vocabulary& vocabulary) {
  if (!metadata.has(key)) return std::nullopt;
  const std::int64_t id = metadata.i64(key);
  if (id == -1 || id == 0xffffffff) return std::nullopt;  // writers put -1 for "none"
  if (id < 0 || static_cast<std::uint64_t>(id) >= vocabulary.size()) {
    base::raise(ErrorKind::kBadFile, "metadata '{}' is {}, outside the {} tokens", key, id,
                vocabulary.size());
  }
  return static_cast<TokenId>(id);
}

Ids first_of(const Vocabulary& vocabulary, std::initializer_list<std::string_view> spellings) {
  for (const std::string_view spelling : spellings) {
    if (const Ids id = vocabulary.find(spelling)) return id;
  }
  return std::nullopt;
}

SpecialTokens read_ids(const weights::Metadata& metadata, const Vocabulary& vocabulary) {
  const auto id = [&](std::string_view key) { return read_id(metadata, key, vocabulary); };
  SpecialTokens tokens;
  tokens.bos = id("tokenizer.ggml.bos_token_id");
  tokens.eos = id("tokenizer.ggml.eos_token_id");
  tokens.eot = id("tokenizer.ggml.eot_token_id");
  tokens.eom = id("tokenizer.ggml.eom_token_id");
  tokens.unknown = id("tokenizer.ggml.unknown_token_id");
  tokens.padding = id("tokenizer.ggml.padding_token_id");
  tokens.mask = id("tokenizer.ggml.mask_token_id");
  tokens.separator = id("tokenizer.ggml.seperator_token_id");  // GGUF's own spelling
  tokens.fim_prefix = id("tokenizer.ggml.fim_pre_token_id");
  tokens.fim_suffix = id("tokenizer.ggml.fim_suf_token_id");
  tokens.fim_middle = id("tokenizer.ggml.fim_mid_token_id");
  return tokens;
}

void fill_from_spellings(SpecialTokens& tokens, const Vocabulary& vocabulary,
                         SpecialDefaults defaults) {
  if (defaults.classic_spellings) {
    if (!tokens.bos) tokens.bos = first_of(vocabulary, {"<s>"});
    if (!tokens.eos) tokens.eos = first_of(vocabulary, {"</s>"});
    if (!tokens.unknown) tokens.unknown = first_of(vocabulary, {"<unk>"});
  }
  if (defaults.bert_spellings) {
    if (!tokens.bos) tokens.bos = first_of(vocabulary, {"[CLS]"});
    if (!tokens.separator) tokens.separator = first_of(vocabulary, {"[SEP]"});
    if (!tokens.unknown) tokens.unknown = first_of(vocabulary, {"[UNK]"});
  }
  if (!tokens.eot) {
    tokens.eot = first_of(vocabulary, {"<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<turn|>",
                                       "<|end|>", "<EOT>", "_<EOT>", "[EOT]"});
  }
  if (!tokens.eom) tokens.eom = first_of(vocabulary, {"<|eom_id|>"});
  if (!tokens.fim_prefix) {
    tokens.fim_prefix = first_of(
        vocabulary, {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<|code_prefix|>", "<PRE>"});
    tokens.fim_suffix = first_of(
        vocabulary, {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<|code_suffix|>", "<SUF>"});
    tokens.fim_middle = first_of(
        vocabulary, {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<|code_middle|>", "<MID>"});
  }
}

bool is_text_kind(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
}

/// Adds the tokens with these spellings to `ends`. A converter may have stored one as text; it is
/// made a control token, since text that spells it must not end a turn.
template <std::size_t N>
void add_ends(const std::array<std::string_view, N>& spellings, Vocabulary& vocabulary,
              std::vector<TokenId>& ends) {
  for (const std::string_view spelling : spellings) {
    const Ids id = vocabulary.find(spelling);
    if (!id || vocabulary.kind(*id) == TokenKind::kUnused) continue;
    if (spelling == "</s>" && vocabulary.kind(*id) == TokenKind::kUserDefined) {
      // In a vocabulary with HTML pieces (Gemma) this closes a strike-out; its counterpart is then
      // a piece of text as well.
      const Ids opening = vocabulary.find("<s>");
      if (opening && vocabulary.kind(*opening) != TokenKind::kControl) continue;
    }
    if (is_text_kind(vocabulary.kind(*id))) vocabulary.set_kind(*id, TokenKind::kControl);
    ends.push_back(*id);
  }
}

std::vector<TokenId> find_ends(const SpecialTokens& tokens, Vocabulary& vocabulary) {
  std::vector<TokenId> ends;
  for (const Ids& id : {tokens.eos, tokens.eot, tokens.eom}) {
    if (id) ends.push_back(*id);
  }
  add_ends(kEndOfTurn, vocabulary, ends);
  add_ends(kEndOfText, vocabulary, ends);
  add_ends(kEndOfMessage, vocabulary, ends);
  add_ends(kEndOfFill, vocabulary, ends);
  // gpt-oss closes every channel's message with <|end|> and goes on; its turns end with <|return|>
  // or <|call|>.
  if (vocabulary.find("<|return|>") && vocabulary.find("<|call|>")) {
    if (const Ids end = vocabulary.find("<|end|>")) std::erase(ends, *end);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

/// Phi-3's own tokenizer lets its added tokens swallow the white space behind them; GGUF has no
/// key for that. The exceptions are those of its published tokenizer.json.
std::vector<bool> find_strips_right(const weights::Metadata& metadata, const Vocabulary& vocabulary,
                                    bool sentencepiece) {
  if (!sentencepiece || metadata.string_or("general.architecture", "") != "phi3") return {};
  std::vector<bool> strips(vocabulary.size(), false);
  for (std::size_t i = 0; i < strips.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = vocabulary.kind(id);
    const std::string& text = vocabulary.text(id);
    strips[i] = kind != TokenKind::kNormal && kind != TokenKind::kByte && text != "<unk>" &&
                text != "<s>" && text != "<|endoftext|>";
  }
  return strips;
}

}  // namespace

std::vector<TokenId> settle_special_tokens(SpecialTokens& tokens, Vocabulary& vocabulary,
                                           SpecialDefaults defaults) {
  fill_from_spellings(tokens, vocabulary, defaults);
  return find_ends(tokens, vocabulary);
}

SpecialRules read_special_rules(const weights::Metadata& metadata, Vocabulary& vocabulary,
                                SpecialDefaults defaults) {
  SpecialRules rules;
  rules.tokens = read_ids(metadata, vocabulary);
  rules.end_of_generation = settle_special_tokens(rules.tokens, vocabulary, defaults);
  rules.strips_right = find_strips_right(metadata, vocabulary, defaults.classic_spellings);

  /// Whether the file, or else its kind, wants the token; a kind's wish yields where there is none.
  const auto wants = [&](const std::string& role, const std::string& id_key, bool fallback,
                         const Ids& id) {
    const std::string flag = "tokenizer.ggml.add_" + role + "_token";
    if (!metadata.boolean_or(flag, fallback)) return false;
    if (!id && metadata.has(flag)) {
      base::raise(ErrorKind::kBadFile, "metadata '{}' asks for a token that '{}' does not name",
                  flag, id_key);
    }
    return id.has_value();
  };
  const SpecialTokens& t = rules.tokens;
  rules.adds_bos = wants("bos", "tokenizer.ggml.bos_token_id", defaults.adds_bos, t.bos);
  rules.adds_eos = wants("eos", "tokenizer.ggml.eos_token_id", defaults.adds_eos, t.eos);
  if (rules.adds_bos) rules.before.push_back(*t.bos);
  if (rules.adds_eos) rules.after.push_back(*t.eos);
  if (wants("sep", "tokenizer.ggml.seperator_token_id", defaults.adds_separator, t.separator)) {
    rules.after.push_back(*t.separator);
  }
  return rules;
}

}  // namespace lemma::text
