// SPDX-License-Identifier: Apache-2.0
#include "text/blanks.hpp"

#include <algorithm>

namespace lemma::text {

std::string spell_blanks(std::string_view text, bool blank_in_front) {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + kSpeltBlank.size());
  if (blank_in_front) out += kSpeltBlank;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t blank = std::min(text.find(' ', at), text.size());
    out.append(text.substr(at, blank - at));
    if (blank < text.size()) out += kSpeltBlank;
    at = blank + 1;
  }
  return out;
}

std::string read_blanks(std::string_view spelt) {
  std::string out;
  out.reserve(spelt.size());
  std::size_t at = 0;
  for (std::size_t blank; (blank = spelt.find(kSpeltBlank, at)) != spelt.npos;
       at = blank + kSpeltBlank.size()) {
    out.append(spelt.substr(at, blank - at));
    out += ' ';
  }
  out.append(spelt.substr(at));
  return out;
}

}  // namespace lemma::text
