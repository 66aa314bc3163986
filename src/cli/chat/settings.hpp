// SPDX-License-Identifier: Apache-2.0
// Settings: what a person may change between two turns, by name (/set NAME VALUE).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lemma/sampling.hpp"

namespace lemma::cli::chat {

struct Settings {
  Sampling sampling{};
  std::optional<std::uint64_t> seed{};
  std::optional<std::size_t> max_tokens{};
  std::optional<bool> thinking{};  ///< none: as the template has it
  bool reasoning = true;           ///< shown
  bool wrap = true;                ///< lines are broken between words, on a terminal
  bool statistics = true;          ///< a line after each answer
};

/// Throws kUsage, with what was expected, for a name or a value that is none.
void set(Settings& settings, std::string_view name, std::string_view value);
/// All names with their values and what they may be, one a line.
std::string list(const Settings& settings);

}  // namespace lemma::cli::chat
