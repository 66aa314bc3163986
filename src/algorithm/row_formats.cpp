// SPDX-License-Identifier: Apache-2.0
#include "algorithm/row_formats.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "algorithm/fp_formats.hpp"
#include "base/check.hpp"
#include "base/half.hpp"

namespace lemma::algorithm {
namespace {

constexpr float kLargestF16 = 65504.f;
constexpr float kLargestCode = 127.f;
constexpr std::array<std::string_view, 6> kNames = {"f32", "f16", "bf16", "q8", "fp8", "fp4"};

void store16(std::byte* bytes, std::size_t index, std::uint16_t bits) noexcept {
  std::memcpy(bytes + 2 * index, &bits, 2);
}

std::uint16_t load16(const std::byte* bytes, std::size_t index) noexcept {
  std::uint16_t bits;
  std::memcpy(&bits, bytes + 2 * index, 2);
  return bits;
}

/// The codes are taken with the rounded scale, the one that decoding sees; codes of the unrounded
/// scale would be off by up to 2^-11 of the value, always to the same side.
bool encode_group(std::span<const float> group, std::byte* codes, std::uint16_t& scale) noexcept {
  float largest = 0.f;
  for (const float x : group) {
    if (!std::isfinite(x)) return false;
    largest = std::max(largest, std::fabs(x));
  }
  const float exact = largest / kLargestCode;
  if (exact > kLargestF16) return false;
  scale = base::f32_to_f16(exact);
  const float s = base::f16_to_f32(scale);
  if (s == 0.f) {
    scale = base::f32_to_f16(1.f);
    std::memset(codes, 0, group.size());
    return true;
  }
  for (std::size_t i = 0; i < group.size(); ++i) {
    const float code = std::clamp(std::round(group[i] / s), -kLargestCode, kLargestCode);
    codes[i] = std::byte(static_cast<std::uint8_t>(static_cast<std::int8_t>(code)));
  }
  return true;
}

bool encode_q8(std::size_t group, std::span<const float> row, std::byte* bytes) noexcept {
  LEMMA_CHECK(group > 0 && row.size() % group == 0);
  std::byte* const scales = bytes + row.size();
  for (std::size_t g = 0; g < row.size() / group; ++g) {
    std::uint16_t scale = 0;
    if (!encode_group(row.subspan(g * group, group), bytes + g * group, scale)) return false;
    store16(scales, g, scale);
  }
  return true;
}

void decode_q8(std::size_t group, std::size_t width, const std::byte* bytes, std::size_t begin,
               std::span<float> out) noexcept {
  LEMMA_CHECK(group > 0 && width % group == 0 && begin % group == 0 && out.size() % group == 0);
  for (std::size_t i = 0; i < out.size(); i += group) {
    const float scale = base::f16_to_f32(load16(bytes + width, (begin + i) / group));
    for (std::size_t k = i; k < i + group; ++k) {
      const auto code = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(bytes[begin + k]));
      out[k] = float(code) * scale;
    }
  }
}

/// A row that cannot be turned without overflow has elements that are not finite behind it.
bool encode_index_row(std::span<const float> row, std::byte* bytes) noexcept {
  thread_local std::vector<float> turned;
  turned.assign(row.begin(), row.end());
  hadamard(turned);
  return encode_fp4_row(turned, bytes);
}

}  // namespace

std::string_view to_string(RowFormat format) noexcept {
  return kNames[std::size_t(format)];
}

std::optional<RowFormat> row_format_by_name(std::string_view name) noexcept {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return RowFormat(found - kNames.begin());
}

std::size_t row_format_bytes(RowFormat format, std::size_t width, std::size_t group,
                             std::size_t tail) noexcept {
  switch (format) {
    case RowFormat::kF32:
      return 4 * width;
    case RowFormat::kF16:
    case RowFormat::kBF16:
      return 2 * width;
    case RowFormat::kQ8:
      LEMMA_CHECK(group > 0 && width % group == 0);
      return width + 2 * (width / group);
    case RowFormat::kFp8:
      return fp8_row_bytes(width, tail);
    case RowFormat::kFp4:
      return fp4_row_bytes(width);
  }
  return 0;
}

bool encode_row(RowFormat format, std::size_t group, std::span<const float> row, std::byte* bytes,
                std::size_t tail) noexcept {
  if (format == RowFormat::kQ8) return encode_q8(group, row, bytes);
  if (format == RowFormat::kFp8) return encode_fp8_row(row, tail, bytes);
  if (format == RowFormat::kFp4) return encode_index_row(row, bytes);
  for (const float x : row) {
    if (!std::isfinite(x)) return false;
  }
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(bytes, row.data(), row.size_bytes());
      return true;
    case RowFormat::kF16:
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (std::fabs(row[i]) > kLargestF16) return false;
        store16(bytes, i, base::f32_to_f16(row[i]));
      }
      return true;
    case RowFormat::kBF16:
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::uint16_t bits = base::f32_to_bf16(row[i]);
        if (!std::isfinite(base::bf16_to_f32(bits))) return false;
        store16(bytes, i, bits);
      }
      return true;
    case RowFormat::kQ8:
    case RowFormat::kFp8:
    case RowFormat::kFp4:
      break;
  }
  return false;
}

void decode_row(RowFormat format, std::size_t group, std::size_t width, const std::byte* bytes,
                std::size_t begin, std::span<float> out, std::size_t tail) noexcept {
  LEMMA_CHECK(begin <= width && out.size() <= width - begin);
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(out.data(), bytes + 4 * begin, out.size_bytes());
      return;
    case RowFormat::kF16:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = base::f16_to_f32(load16(bytes, begin + i));
      }
      return;
    case RowFormat::kBF16:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = base::bf16_to_f32(load16(bytes, begin + i));
      }
      return;
    case RowFormat::kQ8:
      decode_q8(group, width, bytes, begin, out);
      return;
    case RowFormat::kFp8:
      LEMMA_CHECK(out.size() == width);
      decode_fp8_row(bytes, tail, out);
      return;
    case RowFormat::kFp4:
      LEMMA_CHECK(out.size() == width);
      decode_fp4_row(bytes, out);
      hadamard(out);  // its own inverse
      return;
  }
}

}  // namespace lemma::algorithm
