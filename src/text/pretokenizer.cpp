// SPDX-License-Identifier: Apache-2.0
// The rules, as published in the models' tokenizer.json (in PCRE notation):
//   GPT-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   Llama 3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//            | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   Qwen 2   as Llama 3 with \p{N} instead of \p{N}{1,3}
//   default  [\p{P}$+<=>^~|]+, then GPT-2, then \p{N}+, then [0-9][0-9][0-9]
//   digits   \p{N}, then GPT-2 (StarCoder, Command-R, SmolLM, ...)
// Each function below returns the end of the match that begins at `at`; `end` bounds the text.
#include "text/pretokenizer.hpp"

#include <fmt/ranges.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/raise.hpp"
#include "base/utf8.hpp"

namespace lemma::text {
namespace {

using Chars = std::span<const TextChar>;

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_line_end(const TextChar& c) {
  return c.code_point == '\r' || c.code_point == '\n';
}
bool is_symbol(const TextChar& c) {
  return !c.space && !c.letter && !c.number;
}

template <typename Predicate>
std::size_t skip(Chars chars, std::size_t at, std::size_t end, Predicate holds) {
  while (at < end && holds(chars[at])) ++at;
  return at;
}

/// 's 't 'm 'd 're 've 'll; `at` itself if none begins there.
std::size_t match_contraction(Chars chars, std::size_t at, std::size_t end, bool any_case) {
  if (chars[at].code_point != '\'') return at;
  const auto letter = [&](std::size_t i) -> char32_t {
    if (i >= end) return 0;
    const char32_t c = chars[i].code_point;
    if (!any_case) return c;
    if (c == 0x17f) return 's';  // the long s folds to s, as in the reference's (?i:'s)
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  };
  const char32_t first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
      (first == 'l' && second == 'l')) {
    return at + 3;
  }
  return at;
}

/// \s+(?!\S)|\s+ : all white space up to the end of the text, or else all but its last character
/// (which the next word may want), or a single one.
std::size_t match_space(Chars chars, std::size_t at, std::size_t end) {
  const std::size_t stop = skip(chars, at, end, [](const TextChar& c) { return c.space; });
  return stop == end || stop - at == 1 ? stop : stop - 1;
}

std::size_t match_gpt2(Chars chars, std::size_t at, std::size_t end) {
  const std::size_t contraction = match_contraction(chars, at, end, false);
  if (contraction > at) return contraction;
  const std::size_t word = at + (chars[at].code_point == ' ' && at + 1 < end ? 1 : 0);
  if (chars[word].letter) return skip(chars, word, end, [](const TextChar& c) { return c.letter; });
  if (chars[word].number) return skip(chars, word, end, [](const TextChar& c) { return c.number; });
  if (is_symbol(chars[word])) return skip(chars, word, end, is_symbol);
  return match_space(chars, at, end);
}

std::size_t match_llama3(Chars chars, std::size_t at, std::size_t end, std::size_t most_digits) {
  const std::size_t contraction = match_contraction(chars, at, end, true);
  if (contraction > at) return contraction;
  const TextChar& first = chars[at];
  const bool prefix = !first.letter && !first.number && !is_line_end(first) && at + 1 < end;
  const std::size_t word = at + (prefix && chars[at + 1].letter ? 1 : 0);
  if (chars[word].letter) return skip(chars, word, end, [](const TextChar& c) { return c.letter; });
  if (first.number) {
    return skip(chars, at, std::min(end, at + most_digits),
                [](const TextChar& c) { return c.number; });
  }
  const std::size_t sign = at + (first.code_point == ' ' && at + 1 < end ? 1 : 0);
  if (is_symbol(chars[sign])) {
    return skip(chars, skip(chars, sign, end, is_symbol), end, is_line_end);
  }
  // \s*[\r\n]+ ends behind the last line end of the white space.
  const std::size_t stop = skip(chars, at, end, [](const TextChar& c) { return c.space; });
  for (std::size_t i = stop; i > at; --i) {
    if (is_line_end(chars[i - 1])) return i;
  }
  return match_space(chars, at, end);
}

template <typename Match>
void cut_all(Chars chars, std::size_t begin, std::size_t end, std::vector<std::uint32_t>& ends,
             Match match) {
  while (begin < end) {
    begin = match(chars, begin, end);
    ends.push_back(static_cast<std::uint32_t>(begin));
  }
}

void cut_gpt2(Chars chars, std::size_t begin, std::size_t end, std::vector<std::uint32_t>& ends) {
  cut_all(chars, begin, end, ends, match_gpt2);
}

void cut_llama3(Chars chars, std::size_t begin, std::size_t end, std::vector<std::uint32_t>& ends) {
  cut_all(chars, begin, end, ends,
          [](Chars c, std::size_t at, std::size_t stop) { return match_llama3(c, at, stop, 3); });
}

void cut_qwen2(Chars chars, std::size_t begin, std::size_t end, std::vector<std::uint32_t>& ends) {
  cut_all(chars, begin, end, ends,
          [](Chars c, std::size_t at, std::size_t stop) { return match_llama3(c, at, stop, 1); });
}

bool is_default_sign(const TextChar& c) {
  return c.punctuation || c.code_point == '$' || c.code_point == '+' || c.code_point == '<' ||
         c.code_point == '=' || c.code_point == '>' || c.code_point == '^' || c.code_point == '~' ||
         c.code_point == '|';
}

/// Runs of characters for which `holds`, and the runs between them.
template <typename Predicate>
void cut_runs(Chars chars, std::size_t begin, std::size_t end, std::vector<std::uint32_t>& ends,
              Predicate holds) {
  cut_all(chars, begin, end, ends, [&](Chars c, std::size_t at, std::size_t stop) {
    const bool inside = holds(c[at]);
    return skip(c, at, stop, [&](const TextChar& x) { return holds(x) == inside; });
  });
}

void cut_signs(Chars chars, std::size_t begin, std::size_t end, std::vector<std::uint32_t>& ends) {
  cut_runs(chars, begin, end, ends, is_default_sign);
}

void cut_numbers(Chars chars, std::size_t begin, std::size_t end,
                 std::vector<std::uint32_t>& ends) {
  cut_runs(chars, begin, end, ends, [](const TextChar& c) { return c.number; });
}

void cut_digits(Chars chars, std::size_t begin, std::size_t end, std::vector<std::uint32_t>& ends) {
  cut_all(chars, begin, end, ends, [](Chars c, std::size_t at, std::size_t stop) {
    if (c[at].number) return at + 1;
    return skip(c, at, stop, [](const TextChar& x) { return !x.number; });
  });
}

/// [0-9][0-9][0-9], leftmost first; what lies between the matches stays in one piece.
void cut_triples(Chars chars, std::size_t begin, std::size_t end,
                 std::vector<std::uint32_t>& ends) {
  const auto digit = [&](std::size_t i) {
    return chars[i].code_point >= '0' && chars[i].code_point <= '9';
  };
  std::size_t gap = begin;
  for (std::size_t at = begin; at + 3 <= end;) {
    if (!(digit(at) && digit(at + 1) && digit(at + 2))) {
      ++at;
      continue;
    }
    if (gap < at) ends.push_back(static_cast<std::uint32_t>(at));
    at += 3;
    ends.push_back(static_cast<std::uint32_t>(at));
    gap = at;
  }
  if (gap < end) ends.push_back(static_cast<std::uint32_t>(end));
}

constexpr std::array<PreTokenizer::Stage, 1> kGpt2Stages = {cut_gpt2};
constexpr std::array<PreTokenizer::Stage, 1> kLlama3Stages = {cut_llama3};
constexpr std::array<PreTokenizer::Stage, 1> kQwen2Stages = {cut_qwen2};
constexpr std::array<PreTokenizer::Stage, 2> kDigitsStages = {cut_digits, cut_gpt2};
constexpr std::array<PreTokenizer::Stage, 4> kDefaultStages = {cut_signs, cut_gpt2, cut_numbers,
                                                               cut_triples};

constexpr PreTokenizer kGpt2(kGpt2Stages, false, false);
constexpr PreTokenizer kLlama3(kLlama3Stages, true, true);
constexpr PreTokenizer kLlama3Merging(kLlama3Stages, false, false);
constexpr PreTokenizer kQwen2(kQwen2Stages, false, false);
constexpr PreTokenizer kDigits(kDigitsStages, false, false);
constexpr PreTokenizer kDefault(kDefaultStages, false, false);

struct Name {
  std::string_view name;
  const PreTokenizer& rules;
};

// Sorted by name. The aliases are files whose tokenizer.json has the same expression.
constexpr Name kNames[] = {
    {"codeshell", kDigits},
    {"command-r", kDigits},
    {"dbrx", kLlama3Merging},
    {"deepseek-r1-qwen", kQwen2},
    {"default", kDefault},
    {"exaone", kDigits},
    {"falcon3", kLlama3},
    {"gpt-2", kGpt2},
    {"jais", kGpt2},
    {"llama-bpe", kLlama3},
    {"llama-v3", kLlama3},
    {"llama3", kLlama3},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"phi-2", kGpt2},
    {"pixtral", kLlama3},
    {"qwen2", kQwen2},
    {"refact", kDigits},
    {"smaug-bpe", kLlama3Merging},
    {"smollm", kDigits},
    {"stablelm2", kQwen2},
    {"starcoder", kDigits},
};

}  // namespace

void classify(std::string_view text, std::vector<TextChar>& out) {
  out.clear();
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const base::Decoded c = base::decode_utf8(text.substr(at));
    const utf8proc_category_t category =
        utf8proc_category(static_cast<utf8proc_int32_t>(c.code_point));
    out.push_back({static_cast<std::uint32_t>(at), c.code_point,
                   category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO,
                   category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO,
                   category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO,
                   is_white_space(c.code_point)});
    at += c.length;
  }
}

const PreTokenizer& PreTokenizer::named(std::string_view name) {
  for (const Name& entry : kNames) {
    if (entry.name == name) return entry.rules;
  }
  base::raise(ErrorKind::kUnsupported, "unknown pre-tokenizer '{}' (tokenizer.ggml.pre); known: {}",
              name, fmt::join(names(), ", "));
}

std::vector<std::string_view> PreTokenizer::names() {
  std::vector<std::string_view> all;
  for (const Name& entry : kNames) all.push_back(entry.name);
  return all;
}

void PreTokenizer::split(std::span<const TextChar> chars, std::vector<std::uint32_t>& ends) const {
  if (chars.empty()) return;
  std::vector<std::uint32_t> pieces = {static_cast<std::uint32_t>(chars.size())};
  for (const Stage stage : stages_) {
    std::vector<std::uint32_t> finer;
    std::size_t begin = 0;
    for (const std::uint32_t end : pieces) {
      stage(chars, begin, end, finer);
      begin = end;
    }
    pieces = std::move(finer);
  }
  ends.insert(ends.end(), pieces.begin(), pieces.end());
}

}  // namespace lemma::text
