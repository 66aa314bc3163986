// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/formatting.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "text/jinja/format_spec.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"

namespace lemma::text::jinja {
namespace {

/// Reads text % values from left to right.
class Percent {
 public:
  Percent(Budget& budget, const Text& text, const Value& values)
      : budget_(budget), text_(text), values_(values) {}

  Text run() {
    const std::string_view bytes = text_.bytes;
    while (at_ < bytes.size()) {
      const std::size_t next = std::min(bytes.find('%', at_), bytes.size());
      out_.append(text_, at_, next);
      at_ = next;
      if (at_ < bytes.size()) conversion();
    }
    // One value that is not used is an error, unless it could be looked into by name.
    const bool mapping = values_.is(Kind::kDict) || values_.is(Kind::kList) ||
                         values_.is(Kind::kRange) || values_.is(Kind::kUndefined);
    if (values_.is(Kind::kTuple) ? used_ < values_.items().size()
                                 : used_ == 0 && !named_ && !mapping)
      base::raise(ErrorKind::kTemplate, "not all arguments converted during string formatting");
    budget_.allocate(out_.size());
    return out_.take();
  }

 private:
  char peek() const {
    if (at_ >= text_.bytes.size()) base::raise(ErrorKind::kTemplate, "incomplete format");
    return text_.bytes[at_];
  }

  Value next_value() {
    if (values_.is(Kind::kTuple)) {
      if (used_ >= values_.items().size())
        base::raise(ErrorKind::kTemplate, "not enough arguments for format string");
      return values_.items()[used_++];
    }
    if (used_++ > 0) base::raise(ErrorKind::kTemplate, "not enough arguments for format string");
    return values_;
  }

  Value named_value() {
    const std::size_t end = text_.bytes.find(')', at_);
    if (end == std::string::npos) base::raise(ErrorKind::kTemplate, "incomplete format key");
    const std::string_view name = std::string_view(text_.bytes).substr(at_, end - at_);
    at_ = end + 1;
    if (!values_.is(Kind::kDict)) base::raise(ErrorKind::kTemplate, "format requires a mapping");
    named_ = true;
    const Value* found = values_.dict().find(name);
    if (!found) base::raise(ErrorKind::kTemplate, "KeyError: '{}'", name);
    return *found;
  }

  int width_or_star(int limit) {
    if (peek() != '*') return read_number(text_.bytes, at_, limit);
    ++at_;
    const Value width = next_value();
    if (!width.is_integral()) base::raise(ErrorKind::kTemplate, "* wants int");
    if (width.as_int() > limit || width.as_int() < -limit)
      base::raise(ErrorKind::kTemplate, "a width of more than {} is not supported", limit);
    return static_cast<int>(width.as_int());
  }

  void conversion() {
    ++at_;
    std::optional<Value> named;
    if (peek() == '(') {
      ++at_;
      named = named_value();
    }
    FormatSpec spec;
    bool zero = false;
    for (;; ++at_) {
      const char c = peek();
      if (c == '-')
        spec.align = '<';
      else if (c == '+' || (c == ' ' && spec.sign != '+'))
        spec.sign = c;
      else if (c == '0')
        zero = true;
      else if (c == '#')
        spec.alternate = true;
      else if (c != ' ')
        break;
    }
    spec.width = width_or_star(kMaxWidth);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max(width_or_star(kMaxPrecision), 0);
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    spec.type = peek();
    ++at_;
    budget_.allocate(static_cast<std::size_t>(spec.width) * 4);
    if (spec.type == '%') {
      out_.append("%");
      return;
    }
    if (zero && !spec.align) {
      spec.align = '=';
      spec.fill = '0';
    }
    convert(spec, named ? *named : next_value());
  }

  void convert(FormatSpec spec, const Value& value) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        if (spec.align == '=') spec.align = '>', spec.fill = ' ';
        if (!spec.align) spec.align = '>';
        if (spec.type == 'a') base::raise(ErrorKind::kTemplate, "%a is not supported");
        out_.append(
            format_string(spec, spec.type == 's' ? to_text(budget_, value) : repr(budget_, value)));
        return;
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        integer(spec, value);
        return;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        require_defined(value);
        if (!value.is_number())
          base::raise(ErrorKind::kTemplate, "must be real number, not {}", type_name(value));
        out_.append(format_float(spec, value.as_double()));
        return;
      case 'c':
        character(spec, value);
        return;
      default:
        base::raise(ErrorKind::kTemplate, "unsupported format character '{}'", spec.type);
    }
  }

  void integer(FormatSpec spec, const Value& value) {
    require_defined(value);
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_integral() && !(decimal && value.is(Kind::kFloat)))
      base::raise(ErrorKind::kTemplate, "%{} format: {} is required, not {}", spec.type,
                  decimal ? "a real number" : "an integer", type_name(value));
    const double real = value.as_double();
    if (value.is(Kind::kFloat) && !(std::fabs(real) < 0x1p63))
      base::raise(ErrorKind::kTemplate, "an integer outside 64 bits is not supported");
    const std::int64_t number =
        value.is(Kind::kFloat) ? static_cast<std::int64_t>(real) : value.as_int();
    if (decimal) spec.type = 'd';
    out_.append(format_integer(spec, number));
  }

  void character(FormatSpec spec, const Value& value) {
    if (!spec.align) spec.align = '>';
    if (value.is(Kind::kString) && value.code_points() == 1) {
      out_.append(padded(spec, value.text(), '>'));
      return;
    }
    if (!value.is_integral() || value.as_int() < 0 || value.as_int() > 0x10ffff ||
        (value.as_int() >> 11) == 0x1b)
      base::raise(ErrorKind::kTemplate, "%c requires int or char");
    TextBuilder one;
    one.append(static_cast<char32_t>(value.as_int()), false);
    out_.append(padded(spec, one.take(), '>'));
  }

  Budget& budget_;
  const Text& text_;
  const Value& values_;
  TextBuilder out_;
  std::size_t at_ = 0, used_ = 0;
  bool named_ = false;
};

/// Reads text.format(...) from left to right.
class Braces {
 public:
  Braces(Renderer& renderer, const Text& text, const Arguments& arguments)
      : renderer_(renderer), text_(text), arguments_(arguments) {}

  Text run() {
    const std::string_view bytes = text_.bytes;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t next = std::min(bytes.find_first_of("{}", at), bytes.size());
      out_.append(text_, at, next);
      if (next == bytes.size()) break;
      if (next + 1 < bytes.size() && bytes[next + 1] == bytes[next]) {
        out_.append(text_, next, next + 1);
        at = next + 2;
        continue;
      }
      if (bytes[next] == '}')
        base::raise(ErrorKind::kTemplate, "Single '}}' encountered in format string");
      at = field(next + 1);
    }
    renderer_.budget().allocate(out_.size());
    return out_.take();
  }

 private:
  /// The field that starts behind the brace at `at` - 1; returns what follows it.
  std::size_t field(std::size_t at) {
    const std::string_view bytes = text_.bytes;
    std::size_t end = at;
    for (int depth = 1; end < bytes.size(); ++end) {
      if (bytes[end] == '{') ++depth;
      if (bytes[end] == '}' && --depth == 0) break;
    }
    if (end == bytes.size())
      base::raise(ErrorKind::kTemplate, "expected '}}' before end of string");
    const std::string_view whole = bytes.substr(at, end - at);
    const std::size_t colon = std::min(whole.find(':'), whole.size());
    std::string_view name = whole.substr(0, colon);
    std::string spec(colon < whole.size() ? whole.substr(colon + 1) : "");
    char conversion = 0;
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    Value value = lookup(name);
    // A spec may hold fields of its own, one level deep.
    for (std::size_t open; (open = spec.find('{')) != spec.npos;) {
      const std::size_t close = std::min(spec.find('}', open), spec.size() - 1);
      const Value inner = lookup(spec.substr(open + 1, close - open - 1));
      spec.replace(open, close - open + 1, to_text(renderer_.budget(), inner).bytes);
      if (spec.size() > 64) base::raise(ErrorKind::kTemplate, "Invalid format specifier");
    }
    if (conversion == 'r')
      value = Value::string(repr(renderer_.budget(), value));
    else if (conversion == 's')
      value = Value::string(to_text(renderer_.budget(), value));
    else if (conversion)
      base::raise(ErrorKind::kTemplate, "Unknown conversion specifier '{}'", conversion);
    out_.append(format_value(renderer_.budget(), value, spec));
    return end + 1;
  }

  Value positional(std::size_t index) {
    if (index >= arguments_.positional.size())
      base::raise(ErrorKind::kTemplate,
                  "Replacement index {} out of range for positional args tuple", index);
    return arguments_.positional[index];
  }

  Value lookup(std::string_view name) {
    std::size_t at = std::min(name.find_first_of(".["), name.size());
    const std::string_view head = name.substr(0, at);
    Value value;
    if (head.empty()) {
      value = positional(automatic_++);
    } else if (head.find_first_not_of("0123456789") == head.npos) {
      std::size_t digits = 0;
      value = positional(static_cast<std::size_t>(read_number(head, digits, kMaxWidth)));
    } else {
      const auto found = std::find_if(arguments_.keywords.begin(), arguments_.keywords.end(),
                                      [&](const auto& entry) { return entry.first == head; });
      if (found == arguments_.keywords.end())
        base::raise(ErrorKind::kTemplate, "KeyError: '{}'", head);
      value = found->second;
    }
    while (at < name.size()) {
      const bool brackets = name[at] == '[';
      const std::size_t end =
          std::min(brackets ? name.find(']', at) : name.find_first_of(".[", at + 1), name.size());
      const std::string part(name.substr(at + 1, end - at - 1));
      if (!brackets) {
        value = renderer_.get_attribute(value, part);
      } else if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) {
        std::size_t digits = 0;
        value = renderer_.get_item(value, Value::integer(read_number(part, digits, kMaxWidth)));
      } else {
        value = renderer_.get_item(value, Value::string(part));
      }
      at = brackets ? std::min(end + 1, name.size()) : end;
    }
    return value;
  }

  Renderer& renderer_;
  const Text& text_;
  const Arguments& arguments_;
  TextBuilder out_;
  std::size_t automatic_ = 0;
};

}  // namespace

Text format_percent(Budget& budget, const Text& text, const Value& values) {
  if (text.markup) base::raise(ErrorKind::kTemplate, "% on a safe text is not supported");
  return Percent(budget, text, values).run();
}

Text format_braces(Renderer& renderer, const Text& text, const Arguments& arguments) {
  if (text.markup) base::raise(ErrorKind::kTemplate, "format() of a safe text is not supported");
  return Braces(renderer, text, arguments).run();
}

}  // namespace lemma::text::jinja
