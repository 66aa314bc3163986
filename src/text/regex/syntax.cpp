// SPDX-License-Identifier: Apache-2.0
#include "text/regex/syntax.hpp"

#include <optional>
#include <string>
#include <utility>

#include "base/hex.hpp"
#include "base/raise.hpp"
#include "base/utf8.hpp"

namespace lemma::text::regex {
namespace {

// The parser recurses once a group; published patterns nest three deep.
constexpr int kDeepest = 40;
constexpr std::uint32_t kMostRepeats = 1000;

Syntax make_set(CharSet set) {
  Syntax node;
  node.kind = SyntaxKind::kSet;
  node.set = std::move(set);
  return node;
}

Syntax make_group(SyntaxKind kind, std::vector<Syntax> children) {
  Syntax node;
  node.kind = kind;
  node.children = std::move(children);
  return node;
}

Syntax make_look(Syntax child, bool negated) {
  Syntax node = make_group(SyntaxKind::kLookAhead, {});
  node.children.push_back(std::move(child));
  node.negated = negated;
  return node;
}

Syntax make_previous(CharSet set, bool at_edge) {
  Syntax node;
  node.kind = SyntaxKind::kPrevious;
  node.set = std::move(set);
  node.at_edge = at_edge;
  return node;
}

Syntax make_end() {
  Syntax node;
  node.kind = SyntaxKind::kEnd;
  return node;
}

Syntax sequence(Syntax first, Syntax second) {
  std::vector<Syntax> parts;
  parts.push_back(std::move(first));
  parts.push_back(std::move(second));
  return make_group(SyntaxKind::kSequence, std::move(parts));
}

Syntax choice(Syntax first, Syntax second) {
  Syntax node = sequence(std::move(first), std::move(second));
  node.kind = SyntaxKind::kChoice;
  return node;
}

/// Between a word's character and another, or the edge of the text.
Syntax word_edge() {
  const CharSet& word = word_set();
  return choice(sequence(make_previous(word, false), make_look(make_set(word), true)),
                sequence(make_previous(word.complement(), true), make_look(make_set(word), false)));
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {
    for (std::size_t i = 0; i < pattern.size();) {
      const base::Decoded c = base::decode_utf8(pattern.substr(i));
      if (!c.valid) base::raise(ErrorKind::kBadFile, "an expression is not UTF-8");
      chars_.push_back(c.code_point);
      i += c.length;
    }
  }

  Syntax parse() {
    Syntax tree = parse_choice(0, false);
    if (!done()) malformed("an unmatched ')'");
    return tree;
  }

 private:
  [[noreturn]] void malformed(std::string_view what) const {
    base::raise(ErrorKind::kBadFile, "expression '{}': {} at character {}", pattern_.substr(0, 200),
                what, at_);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    base::raise(ErrorKind::kUnsupported, "expression '{}': {} at character {} is not supported",
                pattern_.substr(0, 200), what, at_);
  }

  bool done() const { return at_ >= chars_.size(); }
  char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < chars_.size() ? chars_[at_ + ahead] : U'\0';
  }
  bool take(char32_t c) {
    if (done() || chars_[at_] != c) return false;
    ++at_;
    return true;
  }
  char32_t next(std::string_view inside) {
    if (done()) malformed(inside);
    return chars_[at_++];
  }

  Syntax parse_choice(int depth, bool any_case) {
    if (depth > kDeepest) malformed("groups nested too deeply");
    std::vector<Syntax> branches;
    do {
      branches.push_back(parse_sequence(depth, any_case));
    } while (take('|'));
    if (branches.size() == 1) return std::move(branches[0]);
    return make_group(SyntaxKind::kChoice, std::move(branches));
  }

  Syntax parse_sequence(int depth, bool any_case) {
    std::vector<Syntax> parts;
    while (!done() && peek() != '|' && peek() != ')') {
      if (const std::optional<bool> flag = parse_inline_flag()) {
        // The flag holds to the end of the group, branches included: a(?i)b|c is a(?i:b|c).
        parts.push_back(parse_choice(depth + 1, *flag));
        break;
      }
      parts.push_back(parse_repeats(parse_atom(depth, any_case)));
    }
    if (parts.size() == 1) return std::move(parts[0]);
    return make_group(SyntaxKind::kSequence, std::move(parts));
  }

  /// (?i) and (?-i), which hold until the group closes.
  std::optional<bool> parse_inline_flag() {
    if (peek() != '(' || peek(1) != '?') return std::nullopt;
    if (peek(2) == 'i' && peek(3) == ')') {
      at_ += 4;
      return true;
    }
    if (peek(2) == '-' && peek(3) == 'i' && peek(4) == ')') {
      at_ += 5;
      return false;
    }
    return std::nullopt;
  }

  Syntax parse_atom(int depth, bool any_case) {
    const char32_t c = next("an atom");
    switch (c) {
      case '(':
        return parse_group(depth, any_case);
      case '[':
        return make_set(parse_class(depth, any_case));
      case '.':
        return make_set(CharSet{{'\n', '\n'}}.complement());
      case '^':
        return make_previous(CharSet{{'\n', '\n'}}, true);
      case '$':
        return choice(make_end(), make_look(make_set(CharSet{{'\n', '\n'}}), false));
      case '*':
      case '+':
      case '?':
        --at_;
        malformed("a repetition of nothing");
      case '\\':
        return parse_escape_atom(any_case);
      default:
        return make_set(literal(c, any_case));
    }
  }

  static CharSet literal(char32_t c, bool any_case) {
    const CharSet set{{c, c}};
    return any_case ? set.any_case() : set;
  }

  Syntax parse_group(int depth, bool any_case) {
    if (!take('?')) return close(parse_choice(depth + 1, any_case));
    const char32_t c = next("a group");
    switch (c) {
      case ':':
        return close(parse_choice(depth + 1, any_case));
      case '=':
        return make_look(close(parse_choice(depth + 1, any_case)), false);
      case '!':
        return make_look(close(parse_choice(depth + 1, any_case)), true);
      case '>':
        return atomic(close(parse_choice(depth + 1, any_case)));
      case 'i':
        if (take(':')) return close(parse_choice(depth + 1, true));
        break;
      case '-':
        if (take('i') && take(':')) return close(parse_choice(depth + 1, false));
        break;
      case '<':
        if (take('=')) return look_behind(close(parse_choice(depth + 1, any_case)), false);
        if (take('!')) return look_behind(close(parse_choice(depth + 1, any_case)), true);
        while (next("a group's name") != '>') {
        }
        return close(parse_choice(depth + 1, any_case));
      default:
        break;
    }
    unsupported("this kind of group");
  }

  Syntax close(Syntax inside) {
    if (!take(')')) malformed("a group is not closed");
    return inside;
  }

  /// One set behind: all that a walk over single code points can see.
  Syntax look_behind(const Syntax& inside, bool negated) {
    CharSet set;
    if (inside.kind == SyntaxKind::kSet) {
      set = inside.set;
    } else if (inside.kind == SyntaxKind::kChoice) {
      for (const Syntax& branch : inside.children) {
        if (branch.kind != SyntaxKind::kSet) unsupported("look-behind of more than one character");
        set.add(branch.set);
      }
    } else {
      unsupported("look-behind of more than one character");
    }
    return negated ? make_previous(set.complement(), true) : make_previous(std::move(set), false);
  }

  Syntax atomic(Syntax inside) {
    if (inside.kind == SyntaxKind::kSet) return inside;
    if (inside.kind == SyntaxKind::kRepeat && inside.greed != Greed::kLazy &&
        inside.children[0].kind == SyntaxKind::kSet && inside.most == kUnbounded) {
      inside.greed = Greed::kPossessive;
      return inside;
    }
    unsupported("an atomic group");
  }

  Syntax parse_repeats(Syntax atom) {
    for (;;) {
      std::uint32_t least = 0, most = kUnbounded;
      bool counted = false;
      if (take('*')) {
      } else if (take('+')) {
        least = 1;
      } else if (take('?')) {
        most = 1;
      } else if (peek() == '{' && parse_counts(least, most)) {
        counted = true;
      } else {
        return atom;
      }
      Syntax repeat = make_group(SyntaxKind::kRepeat, {});
      repeat.least = least;
      repeat.most = most;
      if (take('?')) {
        repeat.greed = Greed::kLazy;
      } else if (!counted && take('+')) {  // {1,3}+ repeats the counted repeat in this dialect
        repeat.greed = Greed::kPossessive;
        if (atom.kind != SyntaxKind::kSet) unsupported("a possessive repeat of more than one set");
      }
      repeat.children.push_back(std::move(atom));
      atom = std::move(repeat);
    }
  }

  /// {n} {n,} {n,m} {,m}; anything else is a literal brace.
  bool parse_counts(std::uint32_t& least, std::uint32_t& most) {
    const std::size_t start = at_++;
    const std::optional<std::uint32_t> low = parse_number();
    std::optional<std::uint32_t> high = low;
    if (take(',')) high = parse_number();
    const bool comma = chars_[at_ - 1] == ',';
    if ((!low && !high) || !take('}')) {
      at_ = start;
      return false;
    }
    least = low.value_or(0);
    most = comma ? kUnbounded : high.value_or(kUnbounded);
    if (least > kMostRepeats || (most != kUnbounded && (most > kMostRepeats || most < least))) {
      malformed("a repetition count out of range");
    }
    return true;
  }

  std::optional<std::uint32_t> parse_number() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    std::uint32_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = std::min(n * 10 + static_cast<std::uint32_t>(chars_[at_++] - '0'), 100000u);
    }
    return n;
  }

  Syntax parse_escape_atom(bool any_case) {
    switch (peek()) {
      case 'b':
        ++at_;
        return word_edge();
      case 'B':
        ++at_;
        unsupported("\\B");
      case 'A':
        ++at_;
        return make_previous({}, true);
      case 'z':
        ++at_;
        return make_end();
      case 'Z':
        ++at_;
        return choice(make_end(),
                      make_look(sequence(make_set(CharSet{{'\n', '\n'}}), make_end()), false));
      default:
        break;
    }
    const CharSet set = parse_escape();
    return make_set(any_case ? set.any_case() : set);
  }

  /// What follows a backslash, in a class or outside.
  CharSet parse_escape() {
    const char32_t c = next("an escape");
    switch (c) {
      case 's':
        return white_space_set();
      case 'S':
        return white_space_set().complement();
      case 'd':
        return digit_set();
      case 'D':
        return digit_set().complement();
      case 'w':
        return word_set();
      case 'W':
        return word_set().complement();
      case 'h':
        return CharSet{{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
      case 'H':
        return CharSet{{'0', '9'}, {'A', 'F'}, {'a', 'f'}}.complement();
      case 'p':
      case 'P':
        return parse_property(c == 'P');
      default:
        --at_;
        const char32_t literal_char = parse_escaped_char();
        return CharSet{{literal_char, literal_char}};
    }
  }

  char32_t parse_escaped_char() {
    const char32_t c = next("an escape");
    constexpr std::pair<char32_t, char32_t> kControls[] = {
        {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}, {'a', '\a'}, {'e', 0x1b}};
    for (const auto& [letter, control] : kControls) {
      if (c == letter) return control;
    }
    if (c == 'x') return take('{') ? parse_hex(8, true) : parse_hex(2, false);
    if (c == 'u') return parse_hex(4, false);
    if (c == '0') return 0;
    if ((c >= '1' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      unsupported("an escape of this letter or digit");
    }
    return c;
  }

  char32_t parse_hex(int most, bool braces) {
    char32_t value = 0;
    int digits = 0;
    for (; digits < most; ++digits, ++at_) {
      const int digit = base::hex_value(peek());
      if (digit < 0) break;
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (digits == 0 || value > kLastCodePoint || (braces && !take('}'))) {
      malformed("a malformed hexadecimal escape");
    }
    return value;
  }

  CharSet parse_property(bool negated) {
    std::string name;
    if (take('{')) {
      if (take('^')) negated = !negated;
      for (char32_t c; (c = next("a property")) != '}';) {
        if (c > 0x7e || name.size() > 40) malformed("an unknown property");
        name += static_cast<char>(c);
      }
    } else {
      base::append_utf8(name, next("a property"));
    }
    const std::optional<CharSet> set = property_set(name);
    if (!set) {
      base::raise(ErrorKind::kUnsupported, "expression '{}': the property '{}' is not known",
                  pattern_.substr(0, 200), name);
    }
    return negated ? set->complement() : *set;
  }

  /// After '['. Sets may nest and be intersected with &&.
  CharSet parse_class(int depth, bool any_case) {
    if (depth > kDeepest) malformed("sets nested too deeply");
    const bool negated = take('^');
    CharSet set;
    std::optional<CharSet> others;  // what && has met so far
    bool first = true;
    for (;; first = false) {
      if (done()) malformed("a set is not closed");
      if (!first && take(']')) break;
      if (first && take(']')) {
        set.add(']', ']');
      } else if (peek() == '&' && peek(1) == '&') {
        at_ += 2;
        others = others ? others->intersection(set) : set;
        set = CharSet();
      } else if (peek() == '[' && peek(1) == ':') {
        set.add(parse_posix());
      } else if (take('[')) {
        set.add(parse_class(depth + 1, any_case));
      } else {
        parse_range(set);
      }
    }
    if (others) set = others->intersection(set);
    if (any_case) set = set.any_case();
    return negated ? set.complement() : set;
  }

  CharSet parse_posix() {
    at_ += 2;
    const bool negated = take('^');
    std::string name;
    while (peek() >= 'a' && peek() <= 'z') name += static_cast<char>(chars_[at_++]);
    if (!take(':') || !take(']')) malformed("a malformed [:class:]");
    std::optional<CharSet> set = property_set(name);
    if (!set) unsupported("this [:class:]");
    if (name == "punct") set->add(*property_set("S"));
    return negated ? set->complement() : *set;
  }

  /// A single member, an escape that names a set, or a range of members.
  void parse_range(CharSet& set) {
    char32_t first = next("a set");
    if (first == '\\') {
      const CharSet escaped = parse_escape();
      if (escaped.ranges().size() != 1 || escaped.ranges()[0].first != escaped.ranges()[0].last) {
        set.add(escaped);
        return;
      }
      first = escaped.ranges()[0].first;
    }
    if (peek() != '-' || peek(1) == ']' || (peek(1) == '&' && peek(2) == '&')) {
      set.add(first, first);
      return;
    }
    ++at_;
    char32_t last = next("a range");
    if (last == '\\') last = parse_escaped_char();
    if (last < first) malformed("a range whose ends are swapped");
    set.add(first, last);
  }

  std::string_view pattern_;
  std::vector<char32_t> chars_;
  std::size_t at_ = 0;
};

}  // namespace

Syntax parse_syntax(std::string_view pattern) {
  return Parser(pattern).parse();
}

}  // namespace lemma::text::regex
