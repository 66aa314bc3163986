// SPDX-License-Identifier: Apache-2.0
// Block formats: how the elements of a weight row are stored as bytes. Each format has one file in
// formats/ with its layout drawn, a scalar dequantize and quantize, and its error bound; this
// header is the table over them. Everything here is pure and thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lemma::weights {

/// Formats that lemma knows by name. Values are our own; gguf/ maps GGML's type numbers onto them.
/// kI32 holds whole numbers (tables of indices), no weights: it is decoded and never encoded.
enum class Format : std::uint8_t {
  // clang-format off
  kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_K, kQ6_K, kQ5_0,
  kQ4_1, kQ5_1, kQ2_K, kQ3_K, kQ5_K, kQ8_K,
  kIQ1_S, kIQ1_M, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ3_XXS, kIQ3_S, kIQ4_NL, kIQ4_XS,
  kTQ1_0, kTQ2_0, kMXFP4, kNVFP4,
  kI32,
  // clang-format on
};

struct FormatTraits {
  Format format;
  std::string_view name;         ///< as in file names: "F32", "Q4_K"
  std::uint32_t block_elements;  ///< elements of one block: 1, 32, 64 or 256
  std::uint32_t block_bytes;     ///< bytes of one block
  /// For a block whose largest |x| is a <= largest_magnitude, every element satisfies
  /// |x - dequantize(quantize(x))| <= relative_error_bound * a + absolute_error_floor. The floor is
  /// what the smallest scale that the format can store costs; it matters for tiny blocks only.
  /// Above largest_magnitude the nearest storable value is taken: finite, but with no bound.
  float relative_error_bound;
  float absolute_error_floor;
  float largest_magnitude;
  /// Decodes `out.size()` elements (a multiple of block_elements) from whole blocks at `bytes`.
  void (*dequantize)(const std::byte* bytes, std::span<float> out) noexcept;
  /// As quantize() below, `importance` always given (it may be null). Null for kI32.
  void (*encode)(std::span<const float> in, std::byte* bytes, const float* importance) noexcept;

  /// Encodes `in` (a multiple of block_elements, all finite) to whole blocks at `bytes`.
  /// `importance`, if not null, weighs the squared error of each element: in.size() numbers, not
  /// negative; only their ratios within a block matter. Where an element's is a part f < 1 of its
  /// block's mean, the bound above holds for it times 1/sqrt(f), f counted as 0.001 at least.
  void quantize(std::span<const float> in, std::byte* bytes,
                const float* importance = nullptr) const noexcept {
    encode(in, bytes, importance);
  }
};

/// Every format that weights have, in the order of the enumerators: all but kI32, the last.
// clang-format off
inline constexpr std::array kFormats = {
    Format::kF32, Format::kF16, Format::kBF16, Format::kQ8_0, Format::kQ4_0, Format::kQ4_K,
    Format::kQ6_K, Format::kQ5_0, Format::kQ4_1, Format::kQ5_1, Format::kQ2_K, Format::kQ3_K,
    Format::kQ5_K, Format::kQ8_K, Format::kIQ1_S, Format::kIQ1_M, Format::kIQ2_XXS,
    Format::kIQ2_XS, Format::kIQ2_S, Format::kIQ3_XXS, Format::kIQ3_S, Format::kIQ4_NL,
    Format::kIQ4_XS, Format::kTQ1_0, Format::kTQ2_0, Format::kMXFP4, Format::kNVFP4};
// clang-format on

/// The traits of `format`; every enumerator has an entry.
const FormatTraits& traits(Format format) noexcept;

/// The format of weights called `name` (case-insensitive), or nothing.
std::optional<Format> format_by_name(std::string_view name) noexcept;

/// Bytes of one row of `elements` elements. `elements` must be a multiple of block_elements.
inline std::size_t row_bytes(Format format, std::size_t elements) noexcept {
  const FormatTraits& t = traits(format);
  return elements / t.block_elements * t.block_bytes;
}

}  // namespace lemma::weights
