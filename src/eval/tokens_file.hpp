// SPDX-License-Identifier: Apache-2.0
// Token files: a JSON array of ids, as `logits` and `check` take them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace lemma::eval {

/// The ids of the JSON text `json`, at least one, taken as they are. `path` is for messages. Throws
/// kBadFile where it is no array of integers that fit 32 bits.
std::vector<std::int32_t> parse_tokens(std::string_view json, const std::filesystem::path& path);

}  // namespace lemma::eval
