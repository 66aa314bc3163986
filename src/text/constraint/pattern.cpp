// SPDX-License-Identifier: Apache-2.0
// Patterns of JSON schemas: ECMA-262 expressions to automata. A pattern is searched for: it may
// match anywhere, unless it says ^ or $.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/hex.hpp"
#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "text/constraint/char_dfa.hpp"

namespace lemma::text::constraint {
namespace {

using regex::CharRange;
using regex::CharSet;

constexpr int kMostDepth = 100;
constexpr std::size_t kMostPositions = 20000;
constexpr std::size_t kMostPatternStates = 5000;

const CharSet& digits() {
  static const CharSet set = {{'0', '9'}};
  return set;
}
const CharSet& word_chars() {
  static const CharSet set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}
const CharSet& spaces() {
  static const CharSet set = {
      {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
      {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
  return set;
}
const CharSet& line_ends() {
  static const CharSet set = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}

/// A nondeterministic automaton over code points, with edges that stand for ^ and $.
struct PatternNfa {
  enum class Kind : std::uint8_t { kSilent, kBegin, kEnd, kChars };
  struct Edge {
    Kind kind;
    std::uint32_t to, set;
  };
  std::vector<std::vector<Edge>> states;
  std::vector<CharSet> sets;
  std::uint32_t start = 0, accept = 0;
};

struct Piece {
  enum class Kind : std::uint8_t { kSequence, kChoice, kRepeat, kChars, kBegin, kEnd };
  Kind kind = Kind::kSequence;
  CharSet chars;
  std::uint32_t least = 1, most = 1;
  std::vector<Piece> children;
};

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  Piece parse() {
    Piece all = parse_choice(0);
    if (!at_end()) fail("a ')' closes nothing");
    return all;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    base::raise(ErrorKind::kUsage, "pattern '{}', at byte {}: {}", text_, at_, what);
  }
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  char32_t next_char() {
    if (at_end()) fail("the pattern ends too early");
    const base::Decoded c = base::decode_utf8(text_.substr(at_));
    at_ += c.length;
    return c.code_point;
  }
  static Piece chars_piece(CharSet set) {
    Piece piece;
    piece.kind = Piece::Kind::kChars;
    piece.chars = std::move(set);
    return piece;
  }
  static Piece bare(Piece::Kind kind) {
    Piece piece;
    piece.kind = kind;
    return piece;
  }

  Piece parse_choice(int depth) {
    if (depth > kMostDepth) fail("groups are nested too deep");
    Piece piece = bare(Piece::Kind::kChoice);
    do {
      Piece part = bare(Piece::Kind::kSequence);
      while (!at_end() && peek() != '|' && peek() != ')') {
        part.children.push_back(parse_atom(depth));
        parse_repeat(part.children.back());
      }
      piece.children.push_back(std::move(part));
    } while (take("|"));
    return piece;
  }

  Piece parse_atom(int depth) {
    if (take("^")) return bare(Piece::Kind::kBegin);
    if (take("$")) return bare(Piece::Kind::kEnd);
    if (take(".")) return chars_piece(line_ends().complement());
    if (take("[")) return chars_piece(parse_class());
    if (take("(")) return parse_group(depth);
    if (take("\\")) return chars_piece(parse_escape(false));
    if (peek() == '*' || peek() == '+' || peek() == '?') fail("nothing to repeat");
    const char32_t c = next_char();
    return chars_piece({{c, c}});
  }

  Piece parse_group(int depth) {
    for (const char* look : {"?=", "?!", "?<=", "?<!"}) {
      if (take(look)) fail("look-around is not supported");
    }
    if (take("?<")) {
      while (!at_end() && peek() != '>') ++at_;
      if (!take(">")) fail("the group's name has no '>'");
    } else if (!take("?:") && peek() == '?') {
      fail("unknown kind of group");
    }
    Piece inner = parse_choice(depth + 1);
    if (!take(")")) fail("a group has no ')'");
    return inner;
  }

  void parse_repeat(Piece& piece) {
    std::uint32_t least = 0;
    std::uint32_t most = kUnbounded;
    const std::size_t start = at_;
    if (take("*")) {
    } else if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (!parse_bounds(least, most)) {
      at_ = start;
      return;
    }
    take("?");  // lazy or not, the same strings match
    Piece repeated = bare(Piece::Kind::kRepeat);
    repeated.least = least;
    repeated.most = most;
    repeated.children.push_back(std::move(piece));
    piece = std::move(repeated);
    if (peek() == '*' || peek() == '+' || peek() == '?') fail("a repeat of a repeat needs a group");
  }

  /// {m}, {m,} or {m,n}; false, as a '{' that is itself, for anything else.
  bool parse_bounds(std::uint32_t& least, std::uint32_t& most) {
    if (!take("{") || !parse_number(least)) return false;
    most = least;
    if (take(",")) {
      most = kUnbounded;
      if (peek() != '}' && !parse_number(most)) return false;
    }
    if (!take("}")) return false;
    if (least > most) fail("the least number of repeats is larger than the most");
    if ((most == kUnbounded ? least : most) > kMostPositions) fail("too many repeats");
    return true;
  }
  bool parse_number(std::uint32_t& value) {
    const std::size_t start = at_;
    for (value = 0; peek() >= '0' && peek() <= '9'; ++at_)
      value =
          std::min<std::uint32_t>(1'000'000, 10 * value + static_cast<std::uint32_t>(peek() - '0'));
    return at_ > start;
  }

  CharSet parse_class() {
    const bool negated = take("^");
    CharSet set;
    while (!take("]")) {
      if (at_end()) fail("a class has no ']'");
      const CharSet first = parse_member();
      const bool single =
          first.ranges().size() == 1 && first.ranges()[0].first == first.ranges()[0].last;
      if (single && peek() == '-' && !text_.substr(at_).starts_with("-]")) {
        ++at_;
        const CharSet last = parse_member();
        const char32_t from = first.ranges()[0].first;
        if (last.ranges().size() != 1 || last.ranges()[0].first != last.ranges()[0].last)
          fail("a range ends in a set");
        if (last.ranges()[0].first < from) fail("a range's end comes before its beginning");
        set.add(from, last.ranges()[0].first);
      } else {
        set.add(first);
      }
    }
    return negated ? set.complement() : set;
  }
  CharSet parse_member() {
    if (at_end()) fail("a class has no ']'");
    if (take("\\")) return parse_escape(true);
    const char32_t c = next_char();
    return {{c, c}};
  }

  CharSet parse_escape(bool in_class) {
    const char32_t c = next_char();
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_chars();
      case 'W':
        return word_chars().complement();
      case 's':
        return spaces();
      case 'S':
        return spaces().complement();
      case 'p':
      case 'P':
        return c == 'p' ? parse_property() : parse_property().complement();
      case 'b':
        if (in_class) return {{'\b', '\b'}};
        fail("the word border \\b is not supported");
      case 'B':
        fail("the word border \\B is not supported");
      case 'k':
        fail("back references are not supported");
      default:
        break;
    }
    if (c >= '1' && c <= '9') fail("back references are not supported");
    const char32_t value = parse_char_escape(c);
    return {{value, value}};
  }

  char32_t parse_char_escape(char32_t c) {
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'v':
        return '\v';
      case 'f':
        return '\f';
      case '0':
        return 0;
      case 'c':
        return next_char() & 31;
      case 'x':
        return parse_hex(2);
      case 'u':
        return parse_unicode_escape();
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) fail("unknown escape");
        return c;
    }
  }

  char32_t parse_unicode_escape() {
    if (take("{")) {
      char32_t value = 0;
      while (!take("}")) value = std::min<char32_t>(0x200000, value << 4 | parse_hex(1));
      if (value > regex::kLastCodePoint) fail("an escape names no character");
      return value;
    }
    const char32_t high = parse_hex(4);
    if (high < 0xd800 || high > 0xdbff || !take("\\u")) return high;
    const char32_t low = parse_hex(4);
    if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair");
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  char32_t parse_hex(int count) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i, ++at_) {
      const int digit = base::hex_value(static_cast<unsigned char>(peek()));
      if (digit < 0) fail("expected a hexadecimal digit");
      value = value << 4 | static_cast<char32_t>(digit);
    }
    return value;
  }

  CharSet parse_property() {
    if (!take("{")) fail("expected '{' behind \\p");
    const std::size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) fail("a property has no '}'");
    std::string_view name = text_.substr(at_, end - at_);
    if (const std::size_t equals = name.find('='); equals != std::string_view::npos)
      name = name.substr(equals + 1);
    const std::optional<CharSet> set = regex::property_set(name);
    if (!set) fail("unknown property");
    at_ = end + 1;
    return *set;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

class PatternCompiler {
 public:
  PatternCompiler(std::string_view pattern, const Piece& piece) : pattern_(pattern) {
    nfa_.start = state();
    nfa_.accept = state();
    emit(piece, nfa_.start, nfa_.accept);
  }

  CharDfa compile() {
    find_classes();
    CharDfa dfa;
    dfa.classes = classes_;
    std::map<Set, std::uint32_t> ids;
    std::vector<Set> todo;
    const auto id = [&](Set set) {
      const auto [at, fresh] = ids.try_emplace(set, static_cast<std::uint32_t>(ids.size()));
      if (fresh) todo.push_back(std::move(set));
      return at->second;
    };
    id(closure({nfa_.start}, true, false));
    for (std::size_t i = 0; i < todo.size(); ++i) {
      if (todo.size() > kMostPatternStates) too_large();
      const Set set = todo[i];
      const bool matched = has_matched(set);
      const Set at_end = closure(set, i == 0, true);
      dfa.accepts.push_back(matched || has_matched(at_end) ? 1 : 0);
      for (std::size_t c = 0; c < classes_.size(); ++c)
        dfa.next.push_back(id(matched ? set : step(set, c)));
    }
    return dfa;
  }

 private:
  using Set = std::vector<std::uint32_t>;

  [[noreturn]] void too_large() const {
    base::raise(ErrorKind::kUsage, "pattern '{}': it needs more than {} states", pattern_,
                kMostPatternStates);
  }
  std::uint32_t state() {
    if (nfa_.states.size() >= kMostPositions) too_large();
    nfa_.states.emplace_back();
    return static_cast<std::uint32_t>(nfa_.states.size() - 1);
  }
  void edge(std::uint32_t from, std::uint32_t to, PatternNfa::Kind kind, std::uint32_t set = 0) {
    nfa_.states[from].push_back({kind, to, set});
  }

  void emit(const Piece& piece, std::uint32_t from, std::uint32_t to) {
    switch (piece.kind) {
      case Piece::Kind::kBegin:
        return edge(from, to, PatternNfa::Kind::kBegin);
      case Piece::Kind::kEnd:
        return edge(from, to, PatternNfa::Kind::kEnd);
      case Piece::Kind::kChars: {
        const auto known = std::find(nfa_.sets.begin(), nfa_.sets.end(), piece.chars);
        const auto index = static_cast<std::uint32_t>(known - nfa_.sets.begin());
        if (known == nfa_.sets.end()) nfa_.sets.push_back(piece.chars);
        return edge(from, to, PatternNfa::Kind::kChars, index);
      }
      case Piece::Kind::kChoice:
        for (const Piece& child : piece.children) emit(child, from, to);
        return;
      case Piece::Kind::kSequence:
        for (const Piece& child : piece.children) {
          const std::uint32_t next = state();
          emit(child, from, next);
          from = next;
        }
        return edge(from, to, PatternNfa::Kind::kSilent);
      case Piece::Kind::kRepeat:
        return emit_repeat(piece, from, to);
    }
  }

  void emit_repeat(const Piece& piece, std::uint32_t from, std::uint32_t to) {
    const Piece& child = piece.children.front();
    const std::uint32_t copies = piece.most == kUnbounded ? piece.least : piece.most;
    for (std::uint32_t i = 0; i < copies; ++i) {
      if (i >= piece.least) edge(from, to, PatternNfa::Kind::kSilent);
      const std::uint32_t next = state();
      emit(child, from, next);
      from = next;
    }
    if (piece.most == kUnbounded) {
      const std::uint32_t again = state();
      edge(from, again, PatternNfa::Kind::kSilent);
      const std::uint32_t behind = state();
      emit(child, again, behind);
      edge(behind, again, PatternNfa::Kind::kSilent);
      from = again;
    }
    edge(from, to, PatternNfa::Kind::kSilent);
  }

  /// Code points that no set tells apart form a class.
  void find_classes() {
    std::vector<char32_t> borders = {0, regex::kLastCodePoint + 1};
    for (const CharSet& set : nfa_.sets) {
      for (const CharRange& range : set.ranges()) {
        borders.push_back(range.first);
        borders.push_back(range.last + 1);
      }
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    std::map<std::vector<bool>, std::size_t> signatures;
    for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
      std::vector<bool> signature;
      for (const CharSet& set : nfa_.sets) signature.push_back(set.contains(borders[i]));
      const auto [at, fresh] = signatures.try_emplace(std::move(signature), classes_.size());
      if (fresh) {
        classes_.emplace_back();
        members_.push_back(at->first);
      }
      classes_[at->second].add(borders[i], borders[i + 1] - 1);
      if (signatures.size() * nfa_.sets.size() > 4'000'000) too_large();
    }
  }

  bool has_matched(const Set& set) const {
    return std::binary_search(set.begin(), set.end(), nfa_.accept);
  }

  Set closure(const Set& from, bool at_begin, bool at_end) {
    std::vector<bool> seen(nfa_.states.size());
    Set work;
    Set set;
    const auto visit = [&](std::uint32_t s) {
      if (seen[s]) return;
      seen[s] = true;
      work.push_back(s);
      set.push_back(s);
    };
    for (const std::uint32_t s : from) visit(s);
    while (!work.empty()) {
      const std::uint32_t s = work.back();
      work.pop_back();
      for (const PatternNfa::Edge& e : nfa_.states[s]) {
        if (e.kind == PatternNfa::Kind::kSilent ||
            (at_begin && e.kind == PatternNfa::Kind::kBegin) ||
            (at_end && e.kind == PatternNfa::Kind::kEnd)) {
          visit(e.to);
        }
      }
    }
    std::sort(set.begin(), set.end());
    work_ += set.size() + seen.size() / 32;
    if (work_ > 100'000'000) too_large();
    if (has_matched(set)) return {nfa_.accept};  // whatever comes, it has matched
    return set;
  }

  Set step(const Set& set, std::size_t char_class) {
    Set next = {nfa_.start};  // a match may begin anywhere
    for (const std::uint32_t s : set) {
      for (const PatternNfa::Edge& e : nfa_.states[s]) {
        if (e.kind == PatternNfa::Kind::kChars && members_[char_class][e.set]) next.push_back(e.to);
      }
    }
    return closure(next, false, false);
  }

  std::string_view pattern_;
  PatternNfa nfa_;
  std::vector<CharSet> classes_;
  std::vector<std::vector<bool>> members_;  ///< by class: which sets it is in
  std::size_t work_ = 0;
};

}  // namespace

CharDfa pattern_dfa(std::string_view pattern) {
  return reduced(PatternCompiler(pattern, PatternParser(pattern).parse()).compile());
}

}  // namespace lemma::text::constraint
