// SPDX-License-Identifier: Apache-2.0
// State formats: how a row that a sequence remembers (a key, a value, a latent) is rounded and laid
// out in bytes. Rounding is a property of the state, never of the mathematics: every reader sees
// the row as the state holds it, the current row too. Pure functions; both backends use them.
//
// fp8 and fp4 rows (algorithm/fp_formats.hpp) are read and written whole. Fp4 rows are coded behind
// a Hadamard transform and turned back by reading, so that a reader sees them as they were,
// rounded.
//
//   q8, group g: per group one f16 scale s = f16(max|x| / 127) and g int8 codes; all codes of a row
//   first, then its scales. s == 0 is stored as scale 1 with zero codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lemma::algorithm {

enum class RowFormat : std::uint8_t { kF32, kF16, kBF16, kQ8, kFp8, kFp4 };

std::string_view to_string(RowFormat format) noexcept;  ///< "f32", "f16", ..., "fp4"
std::optional<RowFormat> row_format_by_name(std::string_view name) noexcept;

/// Bytes of a row of `width` elements (scales included). `group` matters for kQ8 only, `tail` for
/// kFp8 only, here and below.
std::size_t row_format_bytes(RowFormat format, std::size_t width, std::size_t group,
                             std::size_t tail = 0) noexcept;

/// Encodes one row. Returns false, with the bytes unspecified, if an element is not finite or does
/// not fit the format (|x| > 65504 in f16, a scale that overflows f16 in q8).
[[nodiscard]] bool encode_row(RowFormat format, std::size_t group, std::span<const float> row,
                              std::byte* bytes, std::size_t tail = 0) noexcept;

/// Decodes elements [begin, begin + out.size()) of a row of `width` elements. In kQ8 `begin` and
/// the size are multiples of `group`; kFp8 and kFp4 rows are decoded whole.
void decode_row(RowFormat format, std::size_t group, std::size_t width, const std::byte* bytes,
                std::size_t begin, std::span<float> out, std::size_t tail = 0) noexcept;

}  // namespace lemma::algorithm
