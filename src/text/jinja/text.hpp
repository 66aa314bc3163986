// SPDX-License-Identifier: Apache-2.0
// Text: a string that remembers which of its bytes came from the variables of a template and which
// from the template itself. Every operation of the engine that cuts, joins or changes strings goes
// through TextBuilder, so that the marks survive it. Whoever tokenizes the rendered text then knows
// where a control token may be read: only where all of its bytes are the template's own.
//
// Also the view of UTF-8 as a sequence of code points that Python's strings have.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::text::jinja {

/// Bytes [begin, end) of a text.
struct Span {
  std::size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

struct Text {
  std::string bytes;        ///< well-formed UTF-8
  std::vector<Span> input;  ///< ascending, disjoint, not empty: bytes that came from variables
  bool markup = false;      ///< made by `safe` or `escape`: what is added to it is escaped

  Text() = default;
  explicit Text(std::string own) : bytes(std::move(own)) {}
  /// A text that is all the template's own, or all from variables.
  static Text of(std::string bytes, bool from_input);
};

/// Walks the marks of a text from left to right.
class Marks {
 public:
  explicit Marks(const Text& text) : spans_(&text.input) {}
  /// True if the byte at `at` came from the variables. `at` must not go back by more than a span.
  bool from_input(std::size_t at) {
    while (next_ < spans_->size() && (*spans_)[next_].end <= at) ++next_;
    return next_ < spans_->size() && (*spans_)[next_].begin <= at;
  }

 private:
  const std::vector<Span>* spans_;
  std::size_t next_ = 0;
};

class TextBuilder {
 public:
  std::size_t size() const noexcept { return text_.bytes.size(); }
  void append(std::string_view bytes, bool from_input = false);
  void append(const Text& text) { append(text, 0, text.bytes.size()); }
  /// Bytes [begin, end) of `text`, with their marks.
  void append(const Text& text, std::size_t begin, std::size_t end);
  void append(char32_t code_point, bool from_input);
  /// Drops the bytes from `size` on.
  void truncate(std::size_t size);
  Text take(bool markup = false);

 private:
  void mark(std::size_t begin, std::size_t end);
  Text text_;
};

/// Bytes [begin, end) of `text` as a text of their own; markup stays markup.
Text slice(const Text& text, std::size_t begin, std::size_t end);

/// The number of code points.
std::size_t count_code_points(std::string_view text) noexcept;
/// The byte at which code point `index` starts; the size for one past the last.
std::size_t byte_of_code_point(std::string_view text, std::size_t index) noexcept;
/// Bytes of the code point that starts at `at`.
std::size_t code_point_length(std::string_view text, std::size_t at) noexcept;

/// The first and the last place of `needle`, or npos; in linear time whatever both are.
std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from = 0);
std::size_t find_last_bytes(std::string_view text, std::string_view needle);

/// What Python's str.isspace() says of one code point.
bool is_space(char32_t c) noexcept;
/// True if str.splitlines() breaks here.
bool is_line_break(char32_t c) noexcept;

struct CodePoint {
  char32_t value;
  std::size_t begin, end;
};

/// for (CodePoint c : code_points(text)); ill-formed bytes read as U+FFFD.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text) : text_(text) {}
  class Iterator {
   public:
    Iterator(std::string_view text, std::size_t at) : text_(text), at_(at) { read(); }
    CodePoint operator*() const { return current_; }
    Iterator& operator++() {
      at_ = current_.end;
      read();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    void read();
    std::string_view text_;
    std::size_t at_;
    CodePoint current_{};
  };
  Iterator begin() const { return {text_, 0}; }
  Iterator end() const { return {text_, text_.size()}; }

 private:
  std::string_view text_;
};
inline CodePoints code_points(std::string_view text) {
  return CodePoints(text);
}

/// The byte at which the last code point before `end` starts.
std::size_t previous_code_point(std::string_view text, std::size_t end) noexcept;

}  // namespace lemma::text::jinja
