// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/lexer.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "text/jinja/text.hpp"

namespace lemma::text::jinja {

void fail_at(Position at, std::string_view message) {
  base::raise(ErrorKind::kTemplate, "line {}, column {}: {}", at.line, at.column, message);
}

namespace {

/// Newlines of all kinds become \n, and one at the end is dropped.
std::string normalized(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      result += source[i];
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// A letter, mark or digit outside ASCII, which a name may hold.
bool is_wide_name_part(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) root();
    push(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::size_t at, std::string_view message) {
    fail_at(position(at), message);
  }

  /// Line and column of a byte; asked for with ascending bytes, except by errors.
  Position position(std::size_t at) {
    if (at < counted_) {
      counted_ = 0;
      place_ = {};
    }
    for (; counted_ < at; ++counted_) {
      const auto byte = static_cast<unsigned char>(text_[counted_]);
      if (byte == '\n') {
        ++place_.line;
        place_.column = 1;
      } else if ((byte & 0xc0) != 0x80) {
        ++place_.column;
      }
    }
    return place_;
  }

  Token& push(TokenType type, std::string text) {
    Token token;
    token.type = type;
    token.text = std::move(text);
    token.at = position(at_);
    return tokens_.emplace_back(std::move(token));
  }

  bool starts(std::string_view what, std::size_t at) const {
    return text_.substr(std::min(at, text_.size())).starts_with(what);
  }

  std::size_t skip_space(std::size_t at) const {
    while (at < text_.size()) {
      const base::Decoded c = base::decode_utf8(text_.substr(at));
      if (!is_space(c.code_point)) break;
      at += c.length;
    }
    return at;
  }

  /// The end of a closing delimiter at `at`, if one stands there: "-%}" swallows white space, "%}"
  /// one newline where `trims`, "+%}" nothing.
  std::optional<std::size_t> closing(std::string_view delimiter, std::size_t at, bool trims,
                                     bool plus) const {
    if (starts("-", at) && starts(delimiter, at + 1)) return skip_space(at + 1 + delimiter.size());
    if (plus && starts("+", at) && starts(delimiter, at + 1)) return at + 1 + delimiter.size();
    if (!starts(delimiter, at)) return std::nullopt;
    at += delimiter.size();
    return trims && starts("\n", at) ? at + 1 : at;
  }

  void move_to(std::size_t end) {
    at_ = end;
    line_starting_ = end > 0 && text_[end - 1] == '\n';
  }

  /// Text before a tag, as the sign behind the tag's opening leaves it.
  void data(std::size_t end, char sign, bool variable) {
    std::string_view text = text_.substr(at_, end - at_);
    if (sign == '-') {
      while (!text.empty()) {
        const std::size_t last = previous_code_point(text, text.size());
        if (!is_space(base::decode_utf8(text.substr(last)).code_point)) break;
        text = text.substr(0, last);
      }
    } else if (sign != '+' && !variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line = newline == text.npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && skip_space(at_ + line) >= end)
        text = text.substr(0, line);
    }
    if (!text.empty()) push(TokenType::kData, std::string(text));
  }

  void root() {
    std::size_t open = at_;
    for (;; ++open) {
      open = text_.find('{', open);
      if (open == text_.npos) {
        push(TokenType::kData, std::string(text_.substr(at_)));
        at_ = text_.size();
        return;
      }
      if (starts("%", open + 1) || starts("{", open + 1) || starts("#", open + 1)) break;
    }
    const char kind = text_[open + 1];
    std::size_t inside = open + 2;
    char sign = 0;
    if (starts("-", inside) || starts("+", inside)) sign = text_[inside++];
    data(open, sign, kind == '{');
    at_ = open;
    if (kind == '#') {
      comment(inside);
    } else if (kind == '%') {
      if (const auto body = raw_begin(inside)) {
        raw(*body);
      } else {
        push(TokenType::kBlockBegin, "");
        tag(inside, "%}", TokenType::kBlockEnd);
      }
    } else {
      push(TokenType::kVariableBegin, "");
      tag(inside, "}}", TokenType::kVariableEnd);
    }
  }

  void comment(std::size_t at) {
    for (; at < text_.size(); ++at)
      if (const auto end = closing("#}", at, true, true)) return move_to(*end);
    fail(at_, "Missing end of comment tag");
  }

  /// Where the text of a raw block starts, if this is its opening tag.
  std::optional<std::size_t> raw_begin(std::size_t at) const {
    at = skip_space(at);
    if (!starts("raw", at)) return std::nullopt;
    return closing("%}", skip_space(at + 3), false, false);
  }

  void raw(std::size_t begin) {
    const std::size_t opening = at_;
    for (std::size_t at = begin; (at = text_.find("{%", at)) != text_.npos; ++at) {
      std::size_t inside = at + 2;
      char sign = 0;
      if (starts("-", inside) || starts("+", inside)) sign = text_[inside++];
      inside = skip_space(inside);
      if (!starts("endraw", inside)) continue;
      const auto end = closing("%}", skip_space(inside + 6), true, true);
      if (!end) continue;
      move_to(begin);
      data(at, sign, false);
      return move_to(*end);
    }
    fail(opening, "Missing end of raw directive");
  }

  void tag(std::size_t begin, std::string_view delimiter, TokenType end_type) {
    at_ = begin;
    brackets_.clear();
    while (at_ < text_.size()) {
      if (brackets_.empty()) {
        const bool block = end_type == TokenType::kBlockEnd;
        if (const auto end = closing(delimiter, at_, block, block)) {
          push(end_type, "");
          return move_to(*end);
        }
      }
      const std::size_t next = skip_space(at_);
      if (next != at_)
        at_ = next;
      else
        token();
    }
    push(TokenType::kEnd, "");
  }

  void token() {
    const char c = text_[at_];
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    if (is_name_start(c) || static_cast<unsigned char>(c) >= 0x80) return name();
    operator_token();
  }

  std::size_t digits_end(std::size_t at, std::string_view allowed) const {
    while (at < text_.size() && (allowed.find(text_[at]) != allowed.npos ||
                                 (text_[at] == '_' && at + 1 < text_.size() &&
                                  allowed.find(text_[at + 1]) != allowed.npos)))
      ++at;
    return at;
  }

  static std::string without_underscores(std::string_view text) {
    std::string result(text);
    std::erase(result, '_');
    return result;
  }

  void integer(std::size_t begin, std::size_t end, int base) {
    const std::string digits = without_underscores(text_.substr(begin, end - begin));
    std::int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (result.ec != std::errc()) fail(at_, "an integer outside 64 bits is not supported");
    push(TokenType::kInteger, "").integer = value;
    at_ = end;
  }

  void number() {
    constexpr std::string_view kDecimal = "0123456789";
    if (text_[at_] == '0' && at_ + 2 < text_.size()) {
      const char mark = static_cast<char>(text_[at_ + 1] | 0x20);
      const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
      const std::string_view allowed = base == 16  ? "0123456789abcdefABCDEF"
                                       : base == 8 ? "01234567"
                                                   : "01";
      if (base != 0 && digits_end(at_ + 2, allowed) > at_ + 2)
        return integer(at_ + 2, digits_end(at_ + 2, allowed), base);
    }
    const std::size_t whole = digits_end(at_, kDecimal);
    std::size_t end = whole;
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    if (!after_dot) {
      if (starts(".", end) && end + 1 < text_.size() && is_digit(text_[end + 1]))
        end = digits_end(end + 1, kDecimal);
      if (starts("e", end) || starts("E", end)) {
        std::size_t exponent = end + 1;
        if (starts("+", exponent) || starts("-", exponent)) ++exponent;
        if (exponent < text_.size() && is_digit(text_[exponent]))
          end = digits_end(exponent, kDecimal);
      }
    }
    if (end == whole) {
      // A decimal that starts with 0 is zeros only.
      return integer(at_, text_[at_] == '0' ? digits_end(at_, "0") : whole, 10);
    }
    const std::string digits = without_underscores(text_.substr(at_, end - at_));
    double value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec == std::errc::result_out_of_range)
      fail(at_, "a float outside the range of doubles is not supported");
    push(TokenType::kFloat, "").real = value;
    at_ = end;
  }

  void name() {
    std::size_t end = at_;
    while (end < text_.size()) {
      if (is_name_start(text_[end]) || is_digit(text_[end])) {
        ++end;
        continue;
      }
      const base::Decoded c = base::decode_utf8(text_.substr(end));
      if (c.code_point < 0x80 || !is_wide_name_part(c.code_point)) break;
      end += c.length;
    }
    if (end == at_) unexpected();
    push(TokenType::kName, std::string(text_.substr(at_, end - at_)));
    at_ = end;
  }

  [[noreturn]] void unexpected() {
    const std::string c(text_.substr(at_, code_point_length(text_, at_)));
    fail(at_, fmt::format("unexpected char '{}'", c));
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) unexpected();
    push(TokenType::kString, unescaped(at_ + 1, end));
    at_ = end + 1;
  }

  /// Reads `count` hexadecimal digits behind an escape.
  char32_t hexadecimal(std::size_t at, std::size_t count, std::size_t end) {
    std::uint32_t value = 0;
    const std::string_view digits = text_.substr(at, std::min(count, end - at));
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() < count || result.ptr != digits.data() + digits.size() || value > 0x10ffff)
      fail(at_, "truncated or illegal \\x, \\u or \\U escape");
    if ((value >> 11) == 0x1b) fail(at_, "a lone surrogate is not supported");
    return value;
  }

  /// The text between quotes, with Python's escapes resolved; an unknown escape stays as it is.
  std::string unescaped(std::size_t at, std::size_t end) {
    constexpr std::string_view kPlain = "\\'\"abfnrtv";
    constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    while (at < end) {
      const char c = text_[at++];
      if (c != '\\') {
        out += c;
        continue;
      }
      const char escape = text_[at++];
      const std::size_t known = kPlain.find(escape);
      const std::size_t digits = escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0;
      if (known != kPlain.npos) {
        out += kMeaning[known];
      } else if (digits != 0) {
        base::append_utf8(out, hexadecimal(at, digits, end));
        at += digits;
      } else if (escape >= '0' && escape <= '7') {
        char32_t value = 0;
        for (--at; at < end && value < 0100 && text_[at] >= '0' && text_[at] <= '7'; ++at)
          value = value * 8 + static_cast<char32_t>(text_[at] - '0');
        base::append_utf8(out, value);
      } else if (escape == 'N') {
        fail(at_, "\\N{...} escapes are not supported");
      } else if (escape != '\n') {
        out += '\\';
        out += escape;
      }
    }
    return out;
  }

  void operator_token() {
    constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                    [&](std::string_view op) { return starts(op, at_); });
    if (found == kOperators.end()) unexpected();
    balance((*found)[0]);
    push(TokenType::kOperator, std::string(*found));
    at_ += found->size();
  }

  /// Inside brackets a closing delimiter is two operators: {{ {'a': {}} }}.
  void balance(char c) {
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (const std::size_t open = kOpen.find(c); open != kOpen.npos) brackets_ += kClose[open];
    if (kClose.find(c) == kClose.npos) return;
    if (brackets_.empty()) fail(at_, fmt::format("unexpected '{}'", c));
    if (brackets_.back() != c)
      fail(at_, fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
    brackets_.pop_back();
  }

  std::string source_;
  std::string_view text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  bool line_starting_ = true;
  std::string brackets_;  ///< the closing ones that are waited for
  std::size_t counted_ = 0;
  Position place_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::size_t valid = base::valid_utf8_prefix(source);
  if (valid != source.size())
    base::raise(ErrorKind::kTemplate, "byte {} of the template is not UTF-8", valid);
  return Lexer(source).run();
}

}  // namespace lemma::text::jinja
