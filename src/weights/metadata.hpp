// SPDX-License-Identifier: Apache-2.0
// Metadata: the typed key-value pairs of a checkpoint, as its container gave them. Reading a key
// checks its type and range and names the key in the error. Values keep the file's order.
// Immutable after loading, so safe to share between threads.
//
//   std::uint32_t layers = metadata.u32("llama.block_count");
//   float base = metadata.f32_or("llama.rope.freq_base", 10000.f);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace lemma::weights {

/// One value. Integers of every width are widened; `Array` keeps the element kind of the file.
struct Value {
  using Bools = std::vector<bool>;
  using Ints = std::vector<std::int64_t>;    ///< any signed or unsigned integer that fits
  using Uints = std::vector<std::uint64_t>;  ///< u64 arrays with an element above int64's range
  using Floats = std::vector<double>;
  using Strings = std::vector<std::string>;
  std::variant<bool, std::int64_t, std::uint64_t, double, std::string, Bools, Ints, Uints, Floats,
               Strings>
      data;
  std::string_view type_name;  ///< the file's own word for the type: "u32", "array of f32", ...
};

class Metadata {
 public:
  /// Adds a pair. Throws kBadFile if the key exists already.
  void add(std::string key, Value value);

  bool has(std::string_view key) const noexcept;
  const Value* find(std::string_view key) const noexcept;
  const std::vector<std::pair<std::string, Value>>& pairs() const noexcept { return pairs_; }

  // Required keys: throw kBadFile naming the key when it is absent, of another type or out of
  // range. Integers convert between widths and signs when the value fits; a float is never read
  // as an integer, and an integer never silently as a bool.
  bool boolean(std::string_view key) const;
  std::uint32_t u32(std::string_view key) const;
  std::int64_t i64(std::string_view key) const;
  float f32(std::string_view key) const;  ///< finite
  const std::string& string(std::string_view key) const;
  const std::vector<std::string>& strings(std::string_view key) const;
  std::vector<float> floats(std::string_view key) const;  ///< all finite
  std::vector<std::uint32_t> u32s(std::string_view key) const;
  std::vector<std::int32_t> i32s(std::string_view key) const;
  std::vector<bool> booleans(std::string_view key) const;

  // The same with a value for an absent key; a present key of another type still throws.
  bool boolean_or(std::string_view key, bool fallback) const;
  std::uint32_t u32_or(std::string_view key, std::uint32_t fallback) const;
  float f32_or(std::string_view key, float fallback) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;

  /// A per-layer value: a scalar counts for every layer; an array must have at least `layers`
  /// entries (throws kBadFile naming both counts). Absent: `fallback` for each, or throws without.
  std::vector<std::uint32_t> u32_per_layer(std::string_view key, std::size_t layers,
                                           std::optional<std::uint32_t> fallback = {}) const;
  std::vector<bool> boolean_per_layer(std::string_view key, std::size_t layers,
                                      std::optional<bool> fallback = {}) const;

 private:
  struct Hash {
    using is_transparent = void;  // look-ups by string_view make no string
    std::size_t operator()(std::string_view key) const noexcept {
      return std::hash<std::string_view>{}(key);
    }
  };

  std::vector<std::pair<std::string, Value>> pairs_;
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> index_;
};

}  // namespace lemma::weights
