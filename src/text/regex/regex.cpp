// SPDX-License-Identifier: Apache-2.0
#include "text/regex/regex.hpp"

#include "base/utf8.hpp"

namespace lemma::text::regex {

bool Regex::classify(std::string_view text, Scratch& scratch) const {
  scratch.classes.clear();
  scratch.classes.resize(text.size());
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x80) break;
    scratch.classes[at] = ascii_classes_[byte];
  }
  if (at == text.size()) return true;
  scratch.offsets.clear();
  scratch.offsets.resize(text.size() + 1);
  std::size_t n = at;
  for (std::size_t i = 0; i < n; ++i) scratch.offsets[i] = static_cast<std::uint32_t>(i);
  while (at < text.size()) {
    scratch.offsets[n] = static_cast<std::uint32_t>(at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      scratch.classes[n++] = ascii_classes_[byte];
      ++at;
      continue;
    }
    const base::Decoded c = base::decode_utf8(text.substr(at));
    scratch.classes[n++] = class_of(c.code_point);
    at += c.length;
  }
  scratch.offsets[n] = static_cast<std::uint32_t>(at);
  scratch.classes.resize(n);
  return false;
}

void Regex::walk_backward(Scratch& scratch) const noexcept {
  const std::vector<std::uint8_t>& classes = scratch.classes;
  const std::size_t n = classes.size();
  std::uint16_t state = end_states_[n == 0 ? class_count_ : classes[n - 1]];
  scratch.states[n] = state;
  if (!looks_back_) {
    for (std::size_t i = n; i-- > 0;) {
      state = backward_[state * class_count_ + classes[i]];
      scratch.states[i] = state;
    }
    return;
  }
  for (std::size_t i = n; i-- > 0;) {
    const std::size_t before = i == 0 ? class_count_ : classes[i - 1];
    state = backward_[(state * class_count_ + classes[i]) * (class_count_ + 1) + before];
    scratch.states[i] = state;
  }
}

void Regex::find_all(std::string_view text, Scratch& scratch, std::vector<Match>& out) const {
  const bool bytes = classify(text, scratch);
  const std::size_t n = scratch.classes.size();
  scratch.states.resize(n + 1);
  walk_backward(scratch);
  scratch.steps += n;
  const auto offset = [&](std::size_t i) {
    return bytes ? static_cast<std::uint32_t>(i) : scratch.offsets[i];
  };
  std::size_t after_last = n + 1;  // where the last match ended
  for (std::size_t begin = 0; begin <= n;) {
    std::size_t end = begin;
    std::uint16_t row = forward_[scratch.states[begin]];
    while (row < kFailed) {
      ++end;
      row = forward_[row * state_count_ + scratch.states[end]];
    }
    scratch.steps += end - begin + 1;
    if (row == kFailed || (end == begin && begin == after_last)) {
      ++begin;
      continue;
    }
    out.push_back({offset(begin), offset(end)});
    after_last = end;
    begin = end;
  }
}

}  // namespace lemma::text::regex
