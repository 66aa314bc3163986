// SPDX-License-Identifier: Apache-2.0
// The methods of str. Texts stay what they were: marks go with the bytes, and safe text escapes
// what is put into it.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/arguments.hpp"
#include "text/jinja/formatting.hpp"
#include "text/jinja/letter_case.hpp"
#include "text/jinja/methods.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"
#include "text/jinja/string_methods.hpp"

namespace lemma::text::jinja {

Text strip(const Text& text, const Text* characters, Side side) {
  const auto strips = [&](std::string_view c) {
    if (characters) return characters->bytes.find(c) != std::string::npos;
    return is_space((*CodePoints(c).begin()).value);
  };
  const std::string_view bytes = text.bytes;
  std::size_t begin = 0, end = bytes.size();
  if (side != Side::kRight) {
    while (begin < end) {
      const std::size_t length = code_point_length(bytes, begin);
      if (!strips(bytes.substr(begin, length))) break;
      begin += length;
    }
  }
  if (side != Side::kLeft) {
    while (end > begin) {
      const std::size_t last = previous_code_point(bytes, end);
      if (!strips(bytes.substr(last, end - last))) break;
      end = last;
    }
  }
  return slice(text, begin, end);
}

Text replace(Budget& budget, const Text& text, const Text& old, const Text& with,
             std::int64_t count) {
  TextBuilder out;
  const std::string_view bytes = text.bytes;
  std::size_t at = 0;
  const auto copy_to = [&](std::size_t end) {
    out.append(text, at, end);
    at = end;
    if (out.size() > budget.limits().output) budget.allocate(out.size());
  };
  for (; count != 0; --count) {
    budget.charge(1 + with.bytes.size() / 64);
    if (old.bytes.empty()) {
      out.append(with);
      if (at >= bytes.size()) break;
      copy_to(at + code_point_length(bytes, at));
    } else {
      const std::size_t found = find_bytes(bytes, old.bytes, at);
      if (found == std::string_view::npos) break;
      copy_to(found);
      out.append(with);
      at = found + old.bytes.size();
    }
  }
  copy_to(bytes.size());
  budget.allocate(out.size());
  return out.take(text.markup);
}

Text pad(Budget& budget, const Text& text, std::int64_t width, std::string_view fill, Side side) {
  const std::int64_t missing = width - static_cast<std::int64_t>(count_code_points(text.bytes));
  if (missing <= 0) return text;
  if (static_cast<std::uint64_t>(missing) > budget.limits().output / 4) budget.allocate(SIZE_MAX);
  budget.allocate(static_cast<std::size_t>(missing) * fill.size() + text.bytes.size());
  // Python's rule for centring: the odd one goes left where the width is odd too.
  const std::int64_t left = side == Side::kLeft    ? missing
                            : side == Side::kRight ? 0
                                                   : missing / 2 + (missing & width & 1);
  TextBuilder out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(text);
  for (std::int64_t i = left; i < missing; ++i) out.append(fill);
  return out.take(text.markup);
}

namespace {

Budget& charged(Renderer& renderer, const Value& self) {
  renderer.budget().allocate(self.bytes().size());
  return renderer.budget();
}

Value with_markup(Text text, const Value& self) {
  text.markup = self.text().markup;
  return Value::string(std::move(text));
}

/// A string argument, escaped where it meets safe text.
Text inserted(Renderer& renderer, const Value& self, const Bound& bound, std::size_t i) {
  const Text& text = bound.text(i);
  return self.text().markup && !text.markup ? escape_html(renderer.budget(), text) : text;
}

// Case.

template <Text (*kMap)(const Text&)>
Value map_case(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("str method", std::move(arguments), {});
  charged(renderer, self).charge(self.bytes().size() / 8);
  return Value::string(kMap(self.text()));
}

// Trimming and padding.

template <Side kSide>
Value strip_method(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("strip", std::move(arguments), {"chars"});
  charged(renderer, self);
  if (!bound.is_set(0)) return Value::string(strip(self.text(), nullptr, kSide));
  const Text characters = bound.text(0);
  return Value::string(strip(self.text(), &characters, kSide));
}

template <Side kSide>
Value pad_method(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("ljust", std::move(arguments), {"width", "fillchar"}, 1);
  const Text fill = bound.has(1) ? bound.text(1) : Text(" ");
  if (count_code_points(fill.bytes) != 1)
    base::raise(ErrorKind::kTemplate, "The fill character must be exactly one character long");
  return Value::string(pad(renderer.budget(), self.text(), bound.integer(0), fill.bytes, kSide));
}

Value zfill(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("zfill", std::move(arguments), {"width"}, 1);
  const Text& text = self.text();
  const bool has_sign = text.bytes.starts_with('-') || text.bytes.starts_with('+');
  const std::size_t sign = has_sign ? 1 : 0;
  TextBuilder out;
  out.append(text, 0, sign);
  const std::int64_t width = bound.integer(0);
  if (width < INT64_MIN + 1) return self;
  out.append(pad(renderer.budget(), slice(text, sign, text.bytes.size()),
                 width - static_cast<std::int64_t>(sign), "0", Side::kLeft));
  return with_markup(out.take(), self);
}

Value expandtabs(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("expandtabs", std::move(arguments), {"tabsize"});
  const std::int64_t size = std::min<std::int64_t>(bound.integer(0, 8), 1 << 16);
  TextBuilder out;
  Marks marks(self.text());
  std::int64_t column = 0;
  for (const CodePoint c : code_points(self.bytes())) {
    if (c.value == '\t') {
      const std::int64_t blanks = size > 0 ? size - column % size : 0;
      out.append(std::string(static_cast<std::size_t>(blanks), ' '), marks.from_input(c.begin));
      column += blanks;
      if (out.size() > renderer.budget().limits().output) renderer.budget().allocate(out.size());
      continue;
    }
    column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    out.append(self.text(), c.begin, c.end);
  }
  renderer.budget().allocate(out.size());
  return with_markup(out.take(), self);
}

// Searching.

/// The bytes that optional start and end arguments name, given in code points.
struct Window {
  std::size_t begin, end;
  bool valid;  ///< start is not behind the end
};

Window window(Renderer& renderer, const Value& self, const Bound& bound) {
  charged(renderer, self);
  const auto size = static_cast<std::int64_t>(self.code_points());
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = bound.is_set(i) ? bound.integer(i) : otherwise;
    return at < 0 ? std::max<std::int64_t>(std::max(at, -size) + size, 0) : at;
  };
  const std::int64_t start = place(1, 0), stop = std::min(place(2, size), size);
  const bool valid = start <= stop;
  const auto byte = [&](std::int64_t at) {
    return byte_of_code_point(self.bytes(), static_cast<std::size_t>(std::min(at, size)));
  };
  return {byte(start), byte(stop), valid};
}

std::int64_t find_in(Renderer& renderer, const Value& self, const Bound& bound, bool last) {
  const Window range = window(renderer, self, bound);
  if (!range.valid) return -1;
  const std::string_view part = self.bytes().substr(range.begin, range.end - range.begin);
  const std::string_view needle = bound.text(0).bytes;
  const std::size_t at = last ? find_last_bytes(part, needle) : find_bytes(part, needle);
  if (at == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(count_code_points(self.bytes().substr(0, range.begin + at)));
}

template <bool kLast, bool kMustFind>
Value find_method(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("find", std::move(arguments), {"sub", "start", "end"}, 1);
  const std::int64_t at = find_in(renderer, self, bound, kLast);
  if (kMustFind && at < 0) base::raise(ErrorKind::kTemplate, "substring not found");
  return Value::integer(at);
}

Value count(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("count", std::move(arguments), {"sub", "start", "end"}, 1);
  const Window range = window(renderer, self, bound);
  if (!range.valid) return Value::integer(0);
  const std::string_view part = self.bytes().substr(range.begin, range.end - range.begin);
  const std::string_view needle = bound.text(0).bytes;
  if (needle.empty()) return Value::integer(static_cast<std::int64_t>(count_code_points(part)) + 1);
  std::int64_t result = 0;
  for (std::size_t at = 0; (at = find_bytes(part, needle, at)) != part.npos; at += needle.size())
    ++result;
  return Value::integer(result);
}

template <bool kEnd>
Value starts_or_ends(Renderer& renderer, const Value& self, Arguments arguments) {
  const char* name = kEnd ? "endswith" : "startswith";
  const Bound bound(name, std::move(arguments), {"prefix", "start", "end"}, 1);
  const Window range = window(renderer, self, bound);
  const std::string_view part = self.bytes().substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& affix) {
    if (!affix.is(Kind::kString))
      base::raise(ErrorKind::kTemplate, "{} first arg must be str or a tuple of str, not {}", name,
                  type_name(affix));
    return range.valid && (kEnd ? part.ends_with(affix.bytes()) : part.starts_with(affix.bytes()));
  };
  require_defined(bound[0]);
  if (!bound[0].is(Kind::kTuple)) return Value::boolean(matches(bound[0]));
  const auto& affixes = bound[0].items();
  return Value::boolean(std::any_of(affixes.begin(), affixes.end(), matches));
}

// Cutting and joining.

Value replace_method(Renderer& renderer, const Value& self, Arguments arguments) {
  if (!arguments.keywords.empty())
    base::raise(ErrorKind::kTemplate, "str.replace() takes no keyword arguments");
  const Bound bound("replace", std::move(arguments), {"old", "new", "count"}, 2);
  charged(renderer, self);
  return Value::string(replace(renderer.budget(), self.text(), inserted(renderer, self, bound, 0),
                               inserted(renderer, self, bound, 1), bound.integer(2, -1)));
}

class Pieces {
 public:
  Pieces(Renderer& renderer, const Value& self) : renderer_(renderer), self_(self) {}
  void add(std::size_t begin, std::size_t end) {
    renderer_.budget().allocate(sizeof(Value) + (end - begin));
    items_.push_back(Value::string(slice(self_.text(), begin, end)));
  }
  Value list() { return Value::list(std::move(items_)); }
  Value reversed() {
    std::reverse(items_.begin(), items_.end());
    return list();
  }

 private:
  Renderer& renderer_;
  const Value& self_;
  std::vector<Value> items_;
};

/// At runs of white space, from the left; at most `limit` cuts where that is not negative.
Value split_space(Renderer& renderer, const Value& self, std::int64_t limit) {
  Pieces pieces(renderer, self);
  std::size_t begin = 0;
  bool inside = false;
  for (const CodePoint c : code_points(self.bytes())) {
    const bool space = is_space(c.value);
    if (!inside && !space) {
      begin = c.begin;
      inside = true;
      if (limit == 0) {
        pieces.add(begin, self.bytes().size());
        return pieces.list();
      }
    } else if (inside && space) {
      pieces.add(begin, c.begin);
      inside = false;
      if (limit > 0) --limit;
    }
  }
  if (inside) pieces.add(begin, self.bytes().size());
  return pieces.list();
}

Value rsplit_space(Renderer& renderer, const Value& self, std::int64_t limit) {
  Pieces pieces(renderer, self);
  const std::string_view bytes = self.bytes();
  std::size_t end = bytes.size();
  bool inside = false;
  for (std::size_t at = bytes.size(); at > 0;) {
    const std::size_t begin = previous_code_point(bytes, at);
    const bool space = is_space((*CodePoints(bytes.substr(begin)).begin()).value);
    if (!inside && !space) {
      end = at;
      inside = true;
      if (limit == 0) {
        pieces.add(0, end);
        return pieces.reversed();
      }
    } else if (inside && space) {
      pieces.add(at, end);
      inside = false;
      if (limit > 0) --limit;
    }
    at = begin;
  }
  if (inside) pieces.add(0, end);
  return pieces.reversed();
}

template <bool kRight>
Value split(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("split", std::move(arguments), {"sep", "maxsplit"});
  charged(renderer, self);
  std::int64_t limit = bound.integer(1, -1);
  if (!bound.is_set(0))
    return kRight ? rsplit_space(renderer, self, limit) : split_space(renderer, self, limit);
  const std::string separator = bound.text(0).bytes;
  if (separator.empty()) base::raise(ErrorKind::kTemplate, "empty separator");
  Pieces pieces(renderer, self);
  const std::string_view bytes = self.bytes();
  if (!kRight) {
    std::size_t begin = 0;
    for (std::size_t at; limit != 0 && (at = find_bytes(bytes, separator, begin)) != bytes.npos;
         --limit) {
      pieces.add(begin, at);
      begin = at + separator.size();
    }
    pieces.add(begin, bytes.size());
    return pieces.list();
  }
  // From the right the search is for the reversed separator in the reversed text.
  const std::string back(bytes.rbegin(), bytes.rend());
  const std::string reversed(separator.rbegin(), separator.rend());
  std::size_t begin = 0;
  for (std::size_t at; limit != 0 && (at = find_bytes(back, reversed, begin)) != bytes.npos;
       --limit) {
    pieces.add(bytes.size() - at, bytes.size() - begin);
    begin = at + separator.size();
  }
  pieces.add(0, bytes.size() - begin);
  return pieces.reversed();
}

Value splitlines(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("splitlines", std::move(arguments), {"keepends"});
  charged(renderer, self);
  const bool keep = bound.truth(0);
  Pieces pieces(renderer, self);
  const std::string_view bytes = self.bytes();
  std::size_t begin = 0, skip = 0;
  for (const CodePoint c : code_points(bytes)) {
    if (c.begin < skip || !is_line_break(c.value)) continue;
    const bool pair = c.value == '\r' && c.end < bytes.size() && bytes[c.end] == '\n';
    skip = pair ? c.end + 1 : c.end;
    pieces.add(begin, keep ? skip : c.begin);
    begin = skip;
  }
  if (begin < bytes.size()) pieces.add(begin, bytes.size());
  return pieces.list();
}

Value join(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("join", std::move(arguments), {"iterable"}, 1);
  if (!is_iterable(bound[0])) base::raise(ErrorKind::kTemplate, "can only join an iterable");
  const auto next = iterate(renderer.budget(), bound[0]);
  TextBuilder out;
  Value item;
  const bool safe = self.text().markup;
  for (std::int64_t i = 0; next(item); ++i) {
    if (!item.is(Kind::kString) && !safe)
      base::raise(ErrorKind::kTemplate, "sequence item {}: expected str instance, {} found", i,
                  type_name(item));
    if (i > 0) out.append(self.text());
    Text text = to_text(renderer.budget(), item);
    out.append(safe && !text.markup ? escape_html(renderer.budget(), text) : text);
    if (out.size() > renderer.budget().limits().output) renderer.budget().allocate(out.size());
  }
  renderer.budget().allocate(out.size());
  return with_markup(out.take(), self);
}

template <bool kLast>
Value partition(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("partition", std::move(arguments), {"sep"}, 1);
  charged(renderer, self);
  const Text separator = inserted(renderer, self, bound, 0);
  if (separator.bytes.empty()) base::raise(ErrorKind::kTemplate, "empty separator");
  const std::string_view bytes = self.bytes();
  const std::size_t at =
      kLast ? find_last_bytes(bytes, separator.bytes) : find_bytes(bytes, separator.bytes);
  const Value empty = with_markup(Text(), self);
  if (at == bytes.npos)
    return kLast ? Value::tuple({empty, empty, self}) : Value::tuple({self, empty, empty});
  const std::size_t end = at + separator.bytes.size();
  return Value::tuple({Value::string(slice(self.text(), 0, at)),
                       Value::string(slice(self.text(), at, end)),
                       Value::string(slice(self.text(), end, bytes.size()))});
}

template <bool kSuffix>
Value remove_affix(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("removeprefix", std::move(arguments), {"prefix"}, 1);
  charged(renderer, self);
  const std::string_view bytes = self.bytes(), affix = bound.text(0).bytes;
  if (kSuffix ? !bytes.ends_with(affix) : !bytes.starts_with(affix)) return self;
  const std::size_t begin = kSuffix ? 0 : affix.size();
  return Value::string(slice(self.text(), begin, begin + bytes.size() - affix.size()));
}

Value format(Renderer& renderer, const Value& self, Arguments arguments) {
  return Value::string(format_braces(renderer, self.text(), arguments));
}

struct Method {
  std::string_view name;
  BuiltinFunction function;
};

constexpr std::array kMethods = {
    Method{"capitalize", map_case<capitalize>},
    Method{"casefold", map_case<fold_case>},
    Method{"center", pad_method<Side::kBoth>},
    Method{"count", count},
    Method{"endswith", starts_or_ends<true>},
    Method{"expandtabs", expandtabs},
    Method{"find", find_method<false, false>},
    Method{"format", format},
    Method{"index", find_method<false, true>},
    Method{"join", join},
    Method{"ljust", pad_method<Side::kRight>},
    Method{"lower", map_case<to_lower>},
    Method{"lstrip", strip_method<Side::kLeft>},
    Method{"partition", partition<false>},
    Method{"removeprefix", remove_affix<false>},
    Method{"removesuffix", remove_affix<true>},
    Method{"replace", replace_method},
    Method{"rfind", find_method<true, false>},
    Method{"rindex", find_method<true, true>},
    Method{"rjust", pad_method<Side::kLeft>},
    Method{"rpartition", partition<true>},
    Method{"rsplit", split<true>},
    Method{"rstrip", strip_method<Side::kRight>},
    Method{"split", split<false>},
    Method{"splitlines", splitlines},
    Method{"startswith", starts_or_ends<false>},
    Method{"strip", strip_method<Side::kBoth>},
    Method{"swapcase", map_case<swap_case>},
    Method{"title", map_case<to_title>},
    Method{"upper", map_case<to_upper>},
    Method{"zfill", zfill},
};

constexpr std::array<std::string_view, 5> kUnsupported = {"encode", "format_map", "isprintable",
                                                          "maketrans", "translate"};

}  // namespace

BuiltinFunction find_string_method(std::string_view name) {
  for (const Method& method : kMethods)
    if (method.name == name) return method.function;
  if (const BuiltinFunction question = find_string_question(name)) return question;
  if (std::find(kUnsupported.begin(), kUnsupported.end(), name) != kUnsupported.end())
    base::raise(ErrorKind::kTemplate, "the method '{}' of a str is not supported", name);
  return nullptr;
}

}  // namespace lemma::text::jinja
