// SPDX-License-Identifier: Apache-2.0
#include "text/huggingface/probes.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/utf8.hpp"

namespace lemma::text::huggingface {
namespace {

// clang-format off
constexpr const char* kTexts[] = {
    "Hello world", " leading", "trailing ", "two  blanks", "three   blanks and    four",
    "I'm you're we'll they've he'd it's don't CAN'T I'LL 'til rock'n'roll x's",
    "1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x1F 2026-11-29 v1.2.3",
    "a1b2 c3 4d 12th 5G ½ Ⅷ ², ٣٤٥ ४५६",
    "line\nnext\n\nafter two\n\n\nthree\r\nwindows\r\n\r\n end\n",
    "\ttab\t\ttabs \t mixed\n\t\tindented\n    four\n        eight",
    "...!!! ??? -- --- === *** ### $$$ %%% && || <<>> [[]] {{}} (()) \"quoted\" `code` ~/path\\x",
    "f(x) = {a: [1, 2], \"b\": 'c'}; // comment\nif (a<b && c>=d) return x->y::z;",
    "naïve café Ünïcödé ÀÉÎÕÜ ñandú Straße Łódź Æsir œuvre İstanbul ǅungla",
    "CamelCaseWord snake_case_word kebab-case UPPER lowerUPPER XMLHttpRequest iPhone",
    "Привет, мир! Ёлка 123", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم",
    "你好,世界。这是一个测试123!", "日本語のテキスト、カタカナとひらがな。", "한국어 문장입니다. 테스트",
    "สวัสดีชาวโลก", "नमस्ते दुनिया", "Xin chào thế giới Việt", "„Anführung“ ‘single’ “double” « guillemets »",
    "emoji 😀 🤦🏽‍♀️ 👨‍👩‍👧 🇩🇪 ❤️ end", "math ∑∫√∞ ≤≥≠ → ⇒ ∀x∈ℝ", "zero\u200bwidth and\u00a0nbsp\u3000wide",
    "http://example.com/a?b=c&d=e#f user@mail.org", "世界世世世界世界——I'm", "a\u2028b\u0085c",
    " ", "  ", "\n", "\n\n", " \n ", "x", ".", "1", "'", "'s", "'S", " 's", "\n's", "!s", "/* */\n\n\n",
};
// clang-format on

constexpr std::size_t kPieces = 500;

// GGUF's vocabularies spell blanks as U+2581, so none of them tells it from a blank.
bool is_text(const Tokenizer& tokenizer, TokenId id, const std::string& piece) {
  return piece.find("\xE2\x96\x81") == std::string::npos &&
         tokenizer.kind(id) == TokenKind::kNormal && !piece.empty() && piece.size() < 64 &&
         base::is_valid_utf8(piece);
}

}  // namespace

std::vector<std::string> probe_texts(const Tokenizer& tokenizer, const Normalizer& normalizer) {
  std::vector<std::string> texts(std::begin(kTexts), std::end(kTexts));
  const std::size_t size = tokenizer.vocabulary_size();
  const std::size_t stride = std::max<std::size_t>(1, size / kPieces);
  std::string row;
  for (std::size_t i = 0, n = 0; i < size; i += stride, ++n) {
    const auto id = static_cast<TokenId>(i);
    const std::string piece = tokenizer.piece(id);
    if (!is_text(tokenizer, id, piece)) continue;
    texts.push_back(piece);
    row += piece;
    if (n % 2 == 0) row += ' ';
    if (row.size() > 200) texts.push_back(std::exchange(row, {}));
  }
  texts.push_back(row);
  if (!normalizer.empty())
    for (std::string& text : texts) {
      // A normalizer that does more than compose letters is no part of what must be left out.
      std::string composed = normalizer.run(text);
      if (normalizer.run(composed) == composed && composed.size() <= text.size() &&
          base::is_valid_utf8(composed))
        text = composed;
    }
  return texts;
}

}  // namespace lemma::text::huggingface
