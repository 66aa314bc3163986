// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/text.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/utf8.hpp"

namespace lemma::text::jinja {

Text Text::of(std::string bytes, bool from_input) {
  Text text(std::move(bytes));
  if (from_input && !text.bytes.empty()) text.input.push_back({0, text.bytes.size()});
  return text;
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!text_.input.empty() && text_.input.back().end == begin)
    text_.input.back().end = end;
  else
    text_.input.push_back({begin, end});
}

void TextBuilder::append(std::string_view bytes, bool from_input) {
  const std::size_t begin = size();
  text_.bytes += bytes;
  if (from_input) mark(begin, size());
}

void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
  const std::size_t start = size();
  text_.bytes.append(text.bytes, begin, end - begin);
  auto span = std::upper_bound(text.input.begin(), text.input.end(), begin,
                               [](std::size_t at, const Span& s) { return at < s.end; });
  for (; span != text.input.end() && span->begin < end; ++span)
    mark(start + std::max(span->begin, begin) - begin, start + std::min(span->end, end) - begin);
}

void TextBuilder::append(char32_t code_point, bool from_input) {
  const std::size_t begin = size();
  base::append_utf8(text_.bytes, code_point);
  if (from_input) mark(begin, size());
}

void TextBuilder::truncate(std::size_t size) {
  text_.bytes.resize(size);
  while (!text_.input.empty() && text_.input.back().begin >= size) text_.input.pop_back();
  if (!text_.input.empty()) text_.input.back().end = std::min(text_.input.back().end, size);
}

Text TextBuilder::take(bool markup) {
  text_.markup = markup;
  return std::exchange(text_, Text());
}

Text slice(const Text& text, std::size_t begin, std::size_t end) {
  TextBuilder builder;
  builder.append(text, begin, end);
  return builder.take(text.markup);
}

namespace {
bool continues(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}
}  // namespace

std::size_t count_code_points(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

std::size_t code_point_length(std::string_view text, std::size_t at) noexcept {
  std::size_t end = at + 1;
  while (end < text.size() && continues(text[end])) ++end;
  return end - at;
}

std::size_t byte_of_code_point(std::string_view text, std::size_t index) noexcept {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += code_point_length(text, at);
  return at;
}

std::size_t previous_code_point(std::string_view text, std::size_t end) noexcept {
  std::size_t at = end - 1;
  while (at > 0 && continues(text[at])) --at;
  return at;
}

std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // memmem is linear, unlike std::string_view::find.
  const void* found =
      ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (!found) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_bytes(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  const std::string back(text.rbegin(), text.rend());
  const std::string reversed(needle.rbegin(), needle.rend());
  const std::size_t at = find_bytes(back, reversed);
  return at == std::string_view::npos ? at : text.size() - at - needle.size();
}

bool is_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool is_line_break(char32_t c) noexcept {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

void CodePoints::Iterator::read() {
  if (at_ >= text_.size()) return;
  const auto byte = static_cast<unsigned char>(text_[at_]);
  if (byte < 0x80) {
    current_ = {byte, at_, at_ + 1};
    return;
  }
  const base::Decoded decoded = base::decode_utf8(text_.substr(at_));
  current_ = {decoded.code_point, at_, at_ + decoded.length};
}

}  // namespace lemma::text::jinja
