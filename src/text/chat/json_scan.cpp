// SPDX-License-Identifier: Apache-2.0
#include "text/chat/json_scan.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "base/utf8.hpp"
#include "lemma/error.hpp"
#include "text/jinja/json.hpp"

namespace lemma::text::chat {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

constexpr ScanResult kMore = {Scan::kMore, 0}, kMalformed = {Scan::kMalformed, 0};

/// The string whose opening quote stands at `at`.
ScanResult scan_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == '"') return {Scan::kDone, at + 1};
    if (byte < 0x20) return kMalformed;
    if (byte != '\\') continue;
    if (++at >= text.size()) return kMore;
    if (text[at] == 'u') {
      for (int i = 0; i < 4; ++i) {
        if (++at >= text.size()) return kMore;
        if (!is_hex(text[at])) return kMalformed;
      }
    } else if (std::string_view("\"\\/bfnrt").find(text[at]) == std::string_view::npos) {
      return kMalformed;
    }
  }
  return kMore;
}

ScanResult scan_number(std::string_view text, std::size_t at, bool final) {
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at > begin;
  };
  const auto missing = [&] { return at >= text.size() && !final ? kMore : kMalformed; };
  if (at < text.size() && text[at] == '-') ++at;
  if (at < text.size() && text[at] == '0')
    ++at;
  else if (!digits())
    return missing();
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digits()) return missing();
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (!digits()) return missing();
  }
  if (at >= text.size() && !final) return kMore;
  return {Scan::kDone, at};
}

ScanResult scan_word(std::string_view text, std::size_t at) {
  for (const std::string_view word : {"true", "false", "null"}) {
    const std::string_view found = text.substr(at, word.size());
    if (found == word) return {Scan::kDone, at + word.size()};
    if (found.size() < word.size() && word.starts_with(found) && !found.empty()) return kMore;
  }
  return kMalformed;
}

ScanResult scan_scalar(std::string_view text, std::size_t at, bool final) {
  if (text[at] == '"') return scan_string(text, at);
  if (text[at] == '-' || is_digit(text[at])) return scan_number(text, at, final);
  return scan_word(text, at);
}

/// Walks a value; `open` holds the brackets around the place, and `wants` says what may come next.
class Walk {
 public:
  Walk(std::string_view text, std::size_t at, bool final) : text_(text), at_(at), final_(final) {}

  ScanResult run() {
    do {
      at_ = skip_blanks(text_, at_);
      if (at_ >= text_.size()) return final_ ? kMalformed : kMore;
      const ScanResult step = one();
      if (step.scan != Scan::kDone) return final_ ? kMalformed : step;
      at_ = step.end;
    } while (!open_.empty());
    return {Scan::kDone, at_};
  }

 private:
  enum class Wants : std::uint8_t { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd };

  ScanResult one() {
    const char c = text_[at_];
    const bool closes = (c == '}' || c == ']') && !open_.empty() && open_.back() == c;
    switch (wants_) {
      case Wants::kCommaOrEnd:
        if (closes) return close();
        if (c != ',') return kMalformed;
        wants_ = open_.back() == '}' ? Wants::kKey : Wants::kValue;
        return {Scan::kDone, at_ + 1};
      case Wants::kColon:
        if (c != ':') return kMalformed;
        wants_ = Wants::kValue;
        return {Scan::kDone, at_ + 1};
      case Wants::kKeyOrEnd:
        if (closes) return close();
        [[fallthrough]];
      case Wants::kKey:
        if (c != '"') return kMalformed;
        wants_ = Wants::kColon;
        return scan_string(text_, at_);
      case Wants::kValueOrEnd:
        if (closes) return close();
        [[fallthrough]];
      case Wants::kValue:
        break;
    }
    if (c == '{' || c == '[') {
      open_ += c == '{' ? '}' : ']';
      wants_ = c == '{' ? Wants::kKeyOrEnd : Wants::kValueOrEnd;
      return {Scan::kDone, at_ + 1};
    }
    wants_ = Wants::kCommaOrEnd;
    return scan_scalar(text_, at_, final_);
  }

  ScanResult close() {
    open_.pop_back();
    wants_ = Wants::kCommaOrEnd;
    return {Scan::kDone, at_ + 1};
  }

  std::string_view text_;
  std::size_t at_;
  bool final_;
  std::string open_;
  Wants wants_ = Wants::kValue;
};

/// Scans what is known to be whole; nothing where it is not.
std::optional<std::size_t> end_of_value(std::string_view text, std::size_t at) {
  const ScanResult result = scan_json(text, at, true);
  if (result.scan != Scan::kDone) return std::nullopt;
  return result.end;
}

}  // namespace

std::size_t skip_blanks(std::string_view text, std::size_t at) {
  while (at < text.size() &&
         (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r'))
    ++at;
  return at;
}

ScanResult scan_json(std::string_view text, std::size_t at, bool final) {
  return Walk(text, at, final).run();
}

bool is_json(std::string_view text) {
  const auto end = end_of_value(text, 0);
  return end && skip_blanks(text, *end) == text.size();
}

bool is_json_object(std::string_view text) {
  const std::size_t begin = skip_blanks(text, 0);
  return begin < text.size() && text[begin] == '{' && is_json(text);
}

std::optional<std::string> json_string(std::string_view text) {
  try {
    const jinja::Value value = jinja::read_json(text);
    if (value.is(jinja::Kind::kString)) return std::string(value.bytes());
  } catch (const Error&) {
    // Not a string, or one with half of a surrogate pair.
  }
  return std::nullopt;
}

std::optional<std::vector<std::pair<std::string, std::string_view>>> json_members(
    std::string_view object) {
  if (!is_json_object(object)) return std::nullopt;
  std::vector<std::pair<std::string, std::string_view>> members;
  std::size_t at = skip_blanks(object, skip_blanks(object, 0) + 1);
  while (object[at] != '}') {
    const std::size_t key_end = *end_of_value(object, at);
    auto key = json_string(object.substr(at, key_end - at));
    if (!key) return std::nullopt;
    const std::size_t value = skip_blanks(object, skip_blanks(object, key_end) + 1);
    const std::size_t value_end = *end_of_value(object, value);
    members.emplace_back(*std::move(key), object.substr(value, value_end - value));
    at = skip_blanks(object, value_end);
    if (object[at] == ',') at = skip_blanks(object, at + 1);
  }
  return members;
}

std::optional<std::vector<std::string_view>> json_elements(std::string_view array) {
  std::size_t at = skip_blanks(array, 0);
  if (at >= array.size() || array[at] != '[' || !is_json(array)) return std::nullopt;
  std::vector<std::string_view> elements;
  at = skip_blanks(array, at + 1);
  while (array[at] != ']') {
    const std::size_t end = *end_of_value(array, at);
    elements.push_back(array.substr(at, end - at));
    at = skip_blanks(array, end);
    if (array[at] == ',') at = skip_blanks(array, at + 1);
  }
  return elements;
}

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (byte < 0x20)
      out += fmt::format("\\u{:04x}", byte);
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace lemma::text::chat
