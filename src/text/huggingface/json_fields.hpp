// SPDX-License-Identifier: Apache-2.0
// Reading fields of a tokenizer.json with errors that say where they are: `where` names the object.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lemma::text::huggingface {

using Json = nlohmann::json;

/// The member `name` of an object, or null. Throws kBadFile if `object` is none.
const Json& member(const Json& object, std::string_view name, std::string_view where);

// The following throw kBadFile for a value of another type.

bool boolean_or(const Json& object, std::string_view name, std::string_view where, bool fallback);
/// Nothing where the member is absent or null.
std::optional<std::string> optional_string(const Json& object, std::string_view name,
                                           std::string_view where);
std::string string_of(const Json& object, std::string_view name, std::string_view where);
/// A whole number from 0 to 2^31 - 1.
std::int32_t number_of(const Json& object, std::string_view name, std::string_view where);
/// An array, which may be empty; absent counts as empty.
const Json& array_of(const Json& object, std::string_view name, std::string_view where);

[[noreturn]] void wrong_type(const Json& value, std::string_view name, std::string_view where,
                             std::string_view expected);
[[noreturn]] void unknown_type(std::string_view type, std::string_view where,
                               std::string_view known);

}  // namespace lemma::text::huggingface
