// SPDX-License-Identifier: Apache-2.0
// The lexer: a template's source becomes tokens. White space is controlled as chat templates expect
// it (trim_blocks and lstrip_blocks on, one newline at the very end dropped, '-' and '+' beside the
// delimiters), so that what is left of the text between tags is exactly what will be printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::text::jinja {

enum class TokenType : std::uint8_t {
  kData,  ///< text between tags, ready to print
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,  ///< escapes are resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

/// Counted from 1; columns in code points.
struct Position {
  std::uint32_t line = 1, column = 1;
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;  ///< data, name, string, operator
  std::int64_t integer = 0;
  double real = 0;
  Position at;
};

/// Throws kTemplate with line and column.
std::vector<Token> tokenize(std::string_view source);

/// Throws kTemplate: "line L, column C: message".
[[noreturn]] void fail_at(Position at, std::string_view message);

}  // namespace lemma::text::jinja
