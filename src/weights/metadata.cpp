// SPDX-License-Identifier: Apache-2.0
#include "weights/metadata.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

#include "base/raise.hpp"

namespace lemma::weights {
namespace {

using base::raise;

[[noreturn]] void raise_type(std::string_view key, std::string_view expected, const Value& value) {
  raise(ErrorKind::kBadFile, "key '{}': expected {}, found {}", key, expected, value.type_name);
}

const Value& required(const Metadata& metadata, std::string_view key, std::string_view expected) {
  const Value* value = metadata.find(key);
  if (!value) raise(ErrorKind::kBadFile, "missing key '{}' (expected {})", key, expected);
  return *value;
}

/// The variant's alternative of type T, or an error that names the key and both types.
template <typename T>
const T& get(const Metadata& metadata, std::string_view key, std::string_view expected) {
  const Value& value = required(metadata, key, expected);
  if (const T* found = std::get_if<T>(&value.data)) return *found;
  raise_type(key, expected, value);
}

template <typename To, typename From>
To narrow(std::string_view key, From value) {
  if (!std::in_range<To>(value)) {
    raise(ErrorKind::kBadFile, "key '{}': expected an integer in [{}, {}], found {}", key,
          std::numeric_limits<To>::min(), std::numeric_limits<To>::max(), value);
  }
  return static_cast<To>(value);
}

template <typename To>
To integer(std::string_view key, const Value& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value.data)) return narrow<To>(key, *i);
  if (const auto* u = std::get_if<std::uint64_t>(&value.data)) return narrow<To>(key, *u);
  raise_type(key, "an integer", value);
}

template <typename To>
std::vector<To> integers(std::string_view key, const Value& value) {
  std::vector<To> out;
  const auto convert = [&](const auto& elements) {
    out.reserve(elements.size());
    for (const auto element : elements) out.push_back(narrow<To>(key, element));
  };
  if (const auto* i = std::get_if<Value::Ints>(&value.data)) {
    convert(*i);
  } else if (const auto* u = std::get_if<Value::Uints>(&value.data)) {
    convert(*u);
  } else {
    raise_type(key, "an array of integers", value);
  }
  return out;
}

float finite(std::string_view key, double value) {
  // The range check on the double comes first: converting a larger one would be undefined.
  if (!(std::fabs(value) <= std::numeric_limits<float>::max())) {
    raise(ErrorKind::kBadFile, "key '{}': expected a finite f32, found {}", key, value);
  }
  return static_cast<float>(value);
}

/// Fits an array to `layers` entries; a longer one is cut.
template <typename T>
std::vector<T> per_layer(std::string_view key, std::vector<T> values, std::size_t layers) {
  if (values.size() < layers) {
    raise(ErrorKind::kBadFile,
          "key '{}': expected at least {} entries, one for each layer, found {}", key, layers,
          values.size());
  }
  values.resize(layers);
  return values;
}

}  // namespace

void Metadata::add(std::string key, Value value) {
  const auto [position, inserted] = index_.emplace(key, pairs_.size());
  if (!inserted) raise(ErrorKind::kBadFile, "key '{}' appears twice", key);
  pairs_.emplace_back(std::move(key), std::move(value));
}

bool Metadata::has(std::string_view key) const noexcept {
  return find(key) != nullptr;
}

const Value* Metadata::find(std::string_view key) const noexcept {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &pairs_[found->second].second;
}

bool Metadata::boolean(std::string_view key) const {
  return get<bool>(*this, key, "a bool");
}

std::uint32_t Metadata::u32(std::string_view key) const {
  return integer<std::uint32_t>(key, required(*this, key, "an integer"));
}

std::int64_t Metadata::i64(std::string_view key) const {
  return integer<std::int64_t>(key, required(*this, key, "an integer"));
}

float Metadata::f32(std::string_view key) const {
  return finite(key, get<double>(*this, key, "a float"));
}

const std::string& Metadata::string(std::string_view key) const {
  return get<std::string>(*this, key, "a string");
}

const std::vector<std::string>& Metadata::strings(std::string_view key) const {
  return get<Value::Strings>(*this, key, "an array of strings");
}

std::vector<float> Metadata::floats(std::string_view key) const {
  const auto& values = get<Value::Floats>(*this, key, "an array of floats");
  std::vector<float> out;
  out.reserve(values.size());
  for (const double value : values) out.push_back(finite(key, value));
  return out;
}

std::vector<std::uint32_t> Metadata::u32s(std::string_view key) const {
  return integers<std::uint32_t>(key, required(*this, key, "an array of integers"));
}

std::vector<std::int32_t> Metadata::i32s(std::string_view key) const {
  return integers<std::int32_t>(key, required(*this, key, "an array of integers"));
}

std::vector<bool> Metadata::booleans(std::string_view key) const {
  return get<Value::Bools>(*this, key, "an array of bools");
}

bool Metadata::boolean_or(std::string_view key, bool fallback) const {
  return has(key) ? boolean(key) : fallback;
}

std::uint32_t Metadata::u32_or(std::string_view key, std::uint32_t fallback) const {
  return has(key) ? u32(key) : fallback;
}

float Metadata::f32_or(std::string_view key, float fallback) const {
  return has(key) ? f32(key) : fallback;
}

std::string Metadata::string_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? string(key) : std::string(fallback);
}

std::vector<std::uint32_t> Metadata::u32_per_layer(std::string_view key, std::size_t layers,
                                                   std::optional<std::uint32_t> fallback) const {
  const Value* value = find(key);
  if (!value && fallback) return std::vector<std::uint32_t>(layers, *fallback);
  const Value& found = required(*this, key, "an integer, or one for each layer");
  if (std::holds_alternative<std::int64_t>(found.data) ||
      std::holds_alternative<std::uint64_t>(found.data)) {
    return std::vector<std::uint32_t>(layers, integer<std::uint32_t>(key, found));
  }
  return per_layer(key, integers<std::uint32_t>(key, found), layers);
}

std::vector<bool> Metadata::boolean_per_layer(std::string_view key, std::size_t layers,
                                              std::optional<bool> fallback) const {
  const Value* value = find(key);
  if (!value && fallback) return std::vector<bool>(layers, *fallback);
  const Value& found = required(*this, key, "a bool, or one for each layer");
  if (const bool* scalar = std::get_if<bool>(&found.data)) {
    return std::vector<bool>(layers, *scalar);
  }
  return per_layer(key, booleans(key), layers);
}

}  // namespace lemma::weights
