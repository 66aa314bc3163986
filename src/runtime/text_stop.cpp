// SPDX-License-Identifier: Apache-2.0
#include "runtime/text_stop.hpp"

#include <algorithm>
#include <utility>

#include "base/raise.hpp"
#include "base/utf8.hpp"

namespace lemma::runtime {
namespace {

std::vector<std::size_t> fallback_table(std::string_view text) {
  std::vector<std::size_t> fallback(text.size() + 1, 0);
  std::size_t length = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = fallback[length];
    if (text[i] == text[length]) ++length;
    fallback[i + 1] = length;
  }
  return fallback;
}

}  // namespace

TextStop::TextStop(const std::vector<std::string>& stops) {
  for (std::size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) base::raise(ErrorKind::kUsage, "stop string {} is empty", i);
    if (!base::is_valid_utf8(stops[i])) {
      base::raise(ErrorKind::kUsage, "stop string {} is not UTF-8", i);
    }
    patterns_.push_back({stops[i], fallback_table(stops[i]), 0});
  }
}

/// True when `byte` completes the pattern.
bool TextStop::advance(Pattern& pattern, char byte) noexcept {
  while (pattern.length > 0 && pattern.text[pattern.length] != byte) {
    pattern.length = pattern.fallback[pattern.length];
  }
  if (pattern.text[pattern.length] == byte) ++pattern.length;
  return pattern.length == pattern.text.size();
}

std::string TextStop::push(std::string_view piece) {
  if (matched_) return {};
  std::string text = std::exchange(held_, {});
  for (const char byte : piece) {
    text += byte;
    const Pattern* found = nullptr;
    for (Pattern& pattern : patterns_) {
      if (!advance(pattern, byte)) continue;
      if (!found || pattern.text.size() > found->text.size()) found = &pattern;
    }
    if (found) {
      matched_ = found->text;
      text.resize(text.size() - found->text.size());
      return text;
    }
  }
  std::size_t hold = 0;
  for (const Pattern& pattern : patterns_) hold = std::max(hold, pattern.length);
  held_ = text.substr(text.size() - hold);
  text.resize(text.size() - hold);
  return text;
}

std::string TextStop::finish() {
  for (Pattern& pattern : patterns_) pattern.length = 0;
  return std::exchange(held_, {});
}

}  // namespace lemma::runtime
