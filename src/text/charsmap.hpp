// SPDX-License-Identifier: Apache-2.0
// Charsmap: the normalization table that SentencePiece compiles into its models: a double array
// (S. Kanda's layout as Darts-clone stores it) from byte strings to offsets of zero-terminated
// replacements. The bytes come from a file: every index is checked. Immutable and thread-safe.
//
//   bytes 0-3: size of the array in bytes, little-endian; the array of 32-bit units; replacements
//   unit: bit 31 value (bits 0-30) | bits 10-30 offset, bit 9 offset in steps of 256, bit 8 a value
//   hangs below, bits 0-7 label
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::text {

class Charsmap {
 public:
  /// An empty blob is an empty map. Throws kBadFile if the sizes contradict each other.
  explicit Charsmap(std::string_view blob);

  bool empty() const noexcept { return units_.empty(); }

  struct Found {
    std::size_t length;            ///< bytes of the text that it stands for
    std::string_view replacement;  ///< lives as long as the map
  };
  /// The longest entry at the start of `text`. Throws kBadFile where the map points outside itself.
  std::optional<Found> longest(std::string_view text) const { return find(text, true); }
  /// The shortest one.
  std::optional<Found> shortest(std::string_view text) const { return find(text, false); }

 private:
  std::optional<Found> find(std::string_view text, bool longest) const;
  std::uint32_t unit(std::size_t index) const;
  std::string_view replacement(std::size_t offset) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace lemma::text
