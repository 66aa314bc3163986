// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any bytes are encoded and decoded with small vocabularies. The text must come back
// byte for byte, control tokens must not come out of text, streaming must equal the whole, and the
// work must stay linear. Byte 0 chooses the vocabulary and the options; with its top bit set the
// rest is cut into a vocabulary instead, which may be refused but not crash.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "base/utf8.hpp"
#include "lemma/error.hpp"
#include "text/detokenizer.hpp"
#include "text/pretokenizer.hpp"
#include "text/sample_vocabulary.hpp"
#include "text/tokenizer.hpp"

namespace lemma::text {
namespace {

using Tokenizers = std::vector<std::unique_ptr<const Tokenizer>>;

const Tokenizers& tokenizers() {
  static const Tokenizers all = [] {
    Tokenizers result;
    result.push_back(Tokenizer::from_metadata(sample::sentencepiece()));
    result.push_back(
        Tokenizer::from_metadata(sample::sentencepiece(), {.add_space_prefix = false}));
    result.push_back(Tokenizer::from_metadata(sample::unigram()));
    result.push_back(Tokenizer::from_metadata(sample::gemma4()));
    for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "default", "starcoder", "deepseek-v3",
                            "deepseek-llm", "kimi-k2", "gpt-4o", "tiny_aya", "bloom"}) {
      result.push_back(Tokenizer::from_metadata(sample::byte_level(pre)));
    }
    return result;
  }();
  return all;
}

/// What SentencePiece makes of a text: U+2581 and a blank are the same to it.
std::string as_decoded(const Tokenizer& tokenizer, std::string_view text) {
  std::string out(text);
  if (tokenizer.model_name() == "gpt2") return out;
  constexpr std::string_view kBlank = "\xe2\x96\x81";
  for (std::size_t at; (at = out.find(kBlank)) != out.npos;) out.replace(at, kBlank.size(), " ");
  return out;
}

void check_text(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  EncodeReport report;
  const std::vector<TokenId> ids =
      tokenizer.encode(text, {.add_special = false, .parse_special = parse_special}, &report);
  // Four expressions at four steps a character, and as much again for merging.
  LEMMA_CHECK(report.steps <= 32 * text.size() + 64);
  const std::string decoded = tokenizer.decode(ids, {.show_special = true});
  if (!parse_special) {
    LEMMA_CHECK(decoded == as_decoded(tokenizer, text));
    for (const TokenId id : ids) LEMMA_CHECK(!tokenizer.is_control(id));
  }
  Detokenizer raw(tokenizer, {true, true, InvalidBytes::kKeep});
  Detokenizer repaired(tokenizer, {true, true, InvalidBytes::kReplace});
  std::string streamed, clean;
  for (const TokenId id : ids) {
    streamed += raw.push(id);
    const std::string part = repaired.push(id);
    LEMMA_CHECK(base::is_valid_utf8(part));
    clean += part;
  }
  LEMMA_CHECK(streamed + raw.finish() == decoded);
  LEMMA_CHECK(clean + repaired.finish() == base::repair_utf8(decoded));
}

/// Lines of `text` become tokens ("K" + spelling, K the kind) and merges ("M" + merge).
void check_vocabulary(std::string_view text, bool sentencepiece) {
  sample::Builder b;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line(text.substr(at, end - at));
    at = end + 1;
    if (line.empty()) continue;
    if (line[0] == 'M') {
      b.merges.push_back(line.substr(1));
    } else {
      b.add(line.substr(1), static_cast<TokenKind>(line[0] & 7), line[0] >> 3);
    }
  }
  try {
    const auto tokenizer = Tokenizer::from_metadata(b.metadata(sentencepiece ? "llama" : "gpt2"));
    const auto ids = tokenizer->encode(text, {.parse_special = true});
    static_cast<void>(tokenizer->decode(ids, {.show_special = true}));
  } catch (const Error&) {
    // A vocabulary made of noise is refused, or lacks a byte of the text.
  }
}

}  // namespace
}  // namespace lemma::text

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lemma::text;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] & 0x80) {
    check_vocabulary(text, (data[0] & 1) != 0);
  } else {
    check_text(*tokenizers()[(data[0] >> 1) % tokenizers().size()], text, (data[0] & 1) != 0);
  }
  return 0;
}
