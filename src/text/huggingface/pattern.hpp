// SPDX-License-Identifier: Apache-2.0
// Pattern: {"String": ...} or {"Regex": ...}, as Split and Replace have them. Immutable.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex/regex.hpp"

namespace lemma::text::huggingface {

class Pattern {
 public:
  /// `where` names the owner in errors.
  Pattern(const nlohmann::json& json, std::string_view where);

  /// Appends all matches in `text`, ascending, none overlapping.
  void find_all(std::string_view text, regex::Scratch& scratch,
                std::vector<regex::Match>& out) const;
  std::string replace_all(std::string_view text, std::string_view replacement) const;

 private:
  std::string literal_;
  std::optional<regex::Regex> regex_;
};

}  // namespace lemma::text::huggingface
