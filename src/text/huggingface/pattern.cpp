// SPDX-License-Identifier: Apache-2.0
#include "text/huggingface/pattern.hpp"

#include <nlohmann/json.hpp>

#include "base/raise.hpp"
#include "text/huggingface/json_fields.hpp"

namespace lemma::text::huggingface {

Pattern::Pattern(const Json& json, std::string_view where) {
  if (json.is_string()) {  // files of old versions
    literal_ = json.get<std::string>();
  } else if (const auto expression = optional_string(json, "Regex", where)) {
    regex_ = regex::Regex::compile(*expression);
  } else {
    literal_ = string_of(json, "String", where);
  }
}

void Pattern::find_all(std::string_view text, regex::Scratch& scratch,
                       std::vector<regex::Match>& out) const {
  if (regex_) {
    regex_->find_all(text, scratch, out);
    return;
  }
  scratch.steps += text.size();
  if (literal_.empty()) return;
  for (std::size_t at = 0; (at = text.find(literal_, at)) != text.npos; at += literal_.size()) {
    out.push_back(
        {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + literal_.size())});
  }
}

std::string Pattern::replace_all(std::string_view text, std::string_view replacement) const {
  regex::Scratch scratch;
  std::vector<regex::Match> matches;
  find_all(text, scratch, matches);
  std::string out;
  out.reserve(text.size() + matches.size() * replacement.size());
  std::size_t at = 0;
  for (const regex::Match& match : matches) {
    out += text.substr(at, match.begin - at);
    out += replacement;
    at = match.end;
  }
  out += text.substr(at);
  return out;
}

}  // namespace lemma::text::huggingface
