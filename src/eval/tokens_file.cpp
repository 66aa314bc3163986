// SPDX-License-Identifier: Apache-2.0
#include "eval/tokens_file.hpp"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/raise.hpp"

namespace lemma::eval {

std::vector<std::int32_t> parse_tokens(std::string_view json, const std::filesystem::path& path) {
  const auto parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_array())
    base::raise(ErrorKind::kBadFile, "{}: expected a JSON array of token ids, found {}",
                path.string(), parsed.is_discarded() ? "no valid JSON" : parsed.type_name());
  if (parsed.empty()) base::raise(ErrorKind::kBadFile, "{}: the array is empty", path.string());
  std::vector<std::int32_t> ids;
  ids.reserve(parsed.size());
  for (const auto& entry : parsed) {
    constexpr std::uint64_t kLargest = std::numeric_limits<std::int32_t>::max();
    if (!entry.is_number_unsigned() || entry.get<std::uint64_t>() > kLargest)
      base::raise(ErrorKind::kBadFile, "{}: entry {}: expected a token id, found {}", path.string(),
                  ids.size(),
                  entry.is_primitive() && !entry.is_string() ? entry.dump() : entry.type_name());
    ids.push_back(entry.get<std::int32_t>());
  }
  return ids;
}

}  // namespace lemma::eval
