// SPDX-License-Identifier: Apache-2.0
// JSON inside a text that is still growing: where a value ends, whether it can still become one,
// and the parts of an object as they stand. Iterative, so that no depth of brackets matters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lemma::text::chat {

enum class Scan : std::uint8_t {
  kDone,       ///< it is there
  kMore,       ///< it may become one with more text
  kMalformed,  ///< no text behind makes it one
};

struct ScanResult {
  Scan scan = Scan::kMalformed;
  std::size_t end = 0;  ///< kDone: one past the value
};

/// The JSON value that starts at `at` (white space in front is skipped). A number at the end of the
/// text may go on unless `final`.
ScanResult scan_json(std::string_view text, std::size_t at, bool final);

std::size_t skip_blanks(std::string_view text, std::size_t at);

/// The members of a whole JSON object: decoded keys, and values as they are written.
std::optional<std::vector<std::pair<std::string, std::string_view>>> json_members(
    std::string_view object);
/// The elements of a whole JSON array, as they are written.
std::optional<std::vector<std::string_view>> json_elements(std::string_view array);
/// The text of a whole JSON string.
std::optional<std::string> json_string(std::string_view text);
/// True if all of `text` is one JSON value.
bool is_json(std::string_view text);
bool is_json_object(std::string_view text);
/// `text` as a JSON string.
std::string quote_json(std::string_view text);

}  // namespace lemma::text::chat
