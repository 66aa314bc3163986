// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/gbnf.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "base/hex.hpp"
#include "base/raise.hpp"
#include "base/utf8.hpp"

namespace lemma::text::constraint {
namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;
constexpr int kMostDepth = 200;
constexpr std::uint32_t kMostRepeats = 1'000'000'000;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {
    if (text.size() > kMostBytes)
      base::raise(ErrorKind::kUsage, "grammar: {} bytes, expected at most {}", text.size(),
                  kMostBytes);
    const std::size_t valid = base::valid_utf8_prefix(text);
    at_ = valid;
    if (valid < text.size()) fail("the text is not UTF-8");
    at_ = 0;
  }

  Grammar parse() {
    skip_lines();
    while (!at_end()) parse_rule();
    for (const auto& [index, place] : first_use_) {
      if (defined_[index]) continue;
      at_ = place;
      fail("rule '" + grammar_.rules[index].name + "' is used but not defined");
    }
    const auto root = ids_.find("root");
    if (root == ids_.end() || !defined_[root->second]) fail("no rule 'root', where a text begins");
    grammar_.root = root->second;
    return std::move(grammar_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t start =
        before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    std::size_t column = 1;  // in characters
    for (const char c : before.substr(start))
      column += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    base::raise(ErrorKind::kUsage, "grammar, line {}, column {}: {}", line, column, what);
  }

  bool at_end() const { return at_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  /// Blanks and comments within a line.
  void skip_blanks() {
    while (!at_end()) {
      if (peek() == ' ' || peek() == '\t' || peek() == '\r') {
        ++at_;
      } else if (peek() == '#') {
        while (!at_end() && peek() != '\n') ++at_;
      } else {
        return;
      }
    }
  }
  void skip_lines() {
    for (skip_blanks(); take('\n');) skip_blanks();
  }
  void skip(bool lines) { lines ? skip_lines() : skip_blanks(); }

  std::uint32_t id_of(const std::string& name) {
    const auto [at, fresh] = ids_.try_emplace(name, grammar_.rules.size());
    if (fresh) {
      grammar_.rules.push_back({name, nothing()});
      defined_.push_back(false);
    }
    return at->second;
  }

  std::string parse_name() {
    const std::size_t start = at_;
    while (!at_end() && is_name(peek())) ++at_;
    if (at_ == start) fail("expected a rule's name" + found());
    return std::string(text_.substr(start, at_ - start));
  }

  std::string found() const {
    if (at_end()) return ", found the end of the grammar";
    if (peek() == '\n') return ", found the end of the line";
    const base::Decoded next = base::decode_utf8(text_.substr(at_));
    return ", found '" + std::string(text_.substr(at_, next.length)) + "'";
  }

  void parse_rule() {
    const std::size_t start = at_;
    const std::string name = parse_name();
    skip_blanks();
    if (!take("::=")) fail("expected '::=' behind the name of rule '" + name + "'" + found());
    const std::uint32_t id = id_of(name);
    if (defined_[id]) {
      at_ = start;
      fail("rule '" + name + "' is defined twice");
    }
    defined_[id] = true;
    skip_lines();
    Expression body = parse_choice(false, 0);
    grammar_.rules[id].body = std::move(body);
    skip_blanks();
    if (!at_end() && peek() != '\n') fail("expected the end of rule '" + name + "'" + found());
    skip_lines();
  }

  Expression parse_choice(bool nested, int depth) {
    if (depth > kMostDepth) fail("groups are nested deeper than " + std::to_string(kMostDepth));
    std::vector<Expression> parts;
    parts.push_back(parse_sequence(nested, depth));
    for (;;) {
      // A choice may go on at the beginning of a later line.
      const std::size_t here = at_;
      skip_lines();
      if (!take('|')) {
        if (!nested) at_ = here;
        break;
      }
      skip_lines();
      parts.push_back(parse_sequence(nested, depth));
    }
    return parts.size() == 1 ? std::move(parts.front()) : choice(std::move(parts));
  }

  Expression parse_sequence(bool nested, int depth) {
    std::vector<Expression> parts;
    for (;;) {
      skip(nested);
      if (at_end()) break;
      const char c = peek();
      if (c == '"') {
        parts.push_back(parse_literal());
      } else if (c == '[') {
        parts.push_back(parse_class());
      } else if (c == '.') {
        ++at_;
        parts.push_back(one_of(regex::CharSet::all()));
      } else if (c == '(') {
        ++at_;
        parts.push_back(parse_choice(true, depth + 1));
        skip_lines();
        if (!take(')')) fail("expected ')'" + found());
      } else if (is_name(c)) {
        const std::size_t place = at_;
        const std::uint32_t id = id_of(parse_name());
        first_use_.try_emplace(id, place);
        parts.push_back(rule_of(id));
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        fail("nothing stands before '" + std::string(1, c) + "' that it could repeat");
      } else {
        break;
      }
      parse_repeats(parts.back(), nested);
    }
    return parts.size() == 1 ? std::move(parts.front()) : sequence(std::move(parts));
  }

  void parse_repeats(Expression& part, bool nested) {
    for (int count = 0;; ++count) {
      const std::size_t here = at_;
      skip(nested);
      std::uint32_t least = 0;
      std::uint32_t most = kUnbounded;
      if (take('*')) {
      } else if (take('+')) {
        least = 1;
      } else if (take('?')) {
        most = 1;
      } else if (take('{')) {
        parse_bounds(least, most);
      } else {
        at_ = here;
        return;
      }
      if (count > 16) fail("more than 16 repeats of one thing");
      part = repeat(std::move(part), least, most);
    }
  }

  void parse_bounds(std::uint32_t& least, std::uint32_t& most) {
    skip_lines();
    const std::size_t start = at_;
    least = parse_count();
    most = least;
    skip_lines();
    if (take(',')) {
      skip_lines();
      most = peek() == '}' ? kUnbounded : parse_count();
      skip_lines();
    }
    if (!take('}')) fail("expected '}' behind the number of repeats" + found());
    if (least > most) {
      at_ = start;
      fail("the least number of repeats is larger than the most");
    }
  }

  std::uint32_t parse_count() {
    const std::size_t start = at_;
    std::uint64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = 10 * value + static_cast<std::uint64_t>(peek() - '0');
      if (value > kMostRepeats) fail("more than " + std::to_string(kMostRepeats) + " repeats");
    }
    if (at_ == start) fail("expected a number of repeats" + found());
    return static_cast<std::uint32_t>(value);
  }

  Expression parse_literal() {
    ++at_;
    std::string bytes;
    while (peek() != '"') {
      if (at_end() || peek() == '\n') fail("a literal has no closing '\"'");
      base::append_utf8(bytes, parse_char());
    }
    ++at_;
    return literal(std::move(bytes));
  }

  Expression parse_class() {
    ++at_;
    const bool negated = take('^');
    std::vector<regex::CharRange> ranges;
    while (peek() != ']') {
      if (at_end() || peek() == '\n') fail("a class has no closing ']'");
      const std::size_t start = at_;
      const char32_t first = parse_char();
      char32_t last = first;
      if (peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
        ++at_;
        last = parse_char();
      }
      if (last < first) {
        at_ = start;
        fail("a range's end comes before its beginning");
      }
      ranges.push_back({first, last});
    }
    ++at_;
    std::sort(ranges.begin(), ranges.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    regex::CharSet set;
    for (const regex::CharRange& range : ranges) set.add(range.first, range.last);
    return one_of(negated ? set.complement() : set);
  }

  char32_t parse_char() {
    if (!take('\\')) {
      const base::Decoded next = base::decode_utf8(text_.substr(at_));
      at_ += next.length;
      return next.code_point;
    }
    if (at_end()) fail("the grammar ends in an escape");
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return parse_hex(2);
      case 'u':
        return parse_hex(4);
      case 'U':
        return parse_hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(c);
      default:
        --at_;
        fail(
            "unknown escape: expected \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH or "
            "\\UHHHHHHHH" +
            found());
    }
  }

  char32_t parse_hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = base::hex_value(static_cast<unsigned char>(peek()));
      if (digit < 0) fail("expected " + std::to_string(digits) + " hexadecimal digits" + found());
      value = value << 4 | static_cast<char32_t>(digit);
    }
    if (value > regex::kLastCodePoint || (value >= 0xd800 && value <= 0xdfff))
      fail("an escape names no character: surrogates and numbers above 10FFFF are none");
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Grammar grammar_;
  std::map<std::string, std::uint32_t> ids_;
  std::vector<bool> defined_;
  std::map<std::uint32_t, std::size_t> first_use_;  ///< by rule: where it is first named
};

}  // namespace

Grammar parse_gbnf(std::string_view text) {
  return GbnfParser(text).parse();
}

}  // namespace lemma::text::constraint
