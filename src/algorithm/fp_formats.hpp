// SPDX-License-Identifier: Apache-2.0
// Eight- and four-bit floats, and the two state rows of DeepSeek V4 that are made of them: a latent
// row in fp8 whose turned tail stays in f16, and an indexer row in fp4 behind a Hadamard transform.
// Both are state formats and no part of the mathematics. Pure functions on one row.
// Rules: docs/contract.md, "Eight- and four-bit rows".
//
//   e4m3   s eeee mmm   bias 7, largest 448, no infinity, NaN 0x7f; below 2^-6 in steps of 2^-9
//   e2m1   s ee m       0, 0.5, 1, 1.5, 2, 3, 4, 6
//   e8m0   eeeeeeee     2^(e - 127), NaN 0xff: the scale of a group
//
//   fp8 row, n with a tail of t: [n - t codes][ceil((n - t) / 64) scales][t f16], tail last
//   fp4 row, n:                  [n / 2 bytes, even element in the low half][n / 32 scales]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lemma::algorithm {

/// The nearest e4m3, ties to the even code; beyond 448 it saturates. NaN gives 0x7f with its sign.
std::uint8_t f32_to_e4m3(float x) noexcept;
float e4m3_to_f32(std::uint8_t code) noexcept;
/// The nearest e2m1 in the low four bits, ties to the even code; beyond 6 it saturates. `x` is no
/// NaN.
std::uint8_t f32_to_e2m1(float x) noexcept;
float e2m1_to_f32(std::uint8_t code) noexcept;
float e8m0_to_f32(std::uint8_t code) noexcept;

/// Elements that share a scale.
inline constexpr std::size_t kFp8Group = 64;
inline constexpr std::size_t kFp4Group = 32;

/// The exponent k of the smallest 2^k with largest <= limit * 2^k, by exact arithmetic, where limit
/// is 448 or 6; `largest` is finite and above 0.
int fp8_scale_exponent(float largest) noexcept;
int fp4_scale_exponent(float largest) noexcept;

/// Bytes of an fp8 row of `width` elements whose last `tail` are kept in f16. The last group of the
/// others may be a short one.
std::size_t fp8_row_bytes(std::size_t width, std::size_t tail) noexcept;
/// Encodes one row; false, with the bytes unspecified, if an element is not finite or the tail does
/// not fit f16.
[[nodiscard]] bool encode_fp8_row(std::span<const float> row, std::size_t tail,
                                  std::byte* bytes) noexcept;
void decode_fp8_row(const std::byte* bytes, std::size_t tail, std::span<float> row) noexcept;

/// Bytes of an fp4 row of `width` elements, a multiple of 32.
std::size_t fp4_row_bytes(std::size_t width) noexcept;
/// Encodes one row as it is (see hadamard()); false if an element is not finite.
[[nodiscard]] bool encode_fp4_row(std::span<const float> row, std::byte* bytes) noexcept;
void decode_fp4_row(const std::byte* bytes, std::span<float> row) noexcept;

/// The orthonormal Walsh-Hadamard transform in place, in natural order; the size is a power of two.
/// It is its own inverse and leaves dot products as they are, so an indexer whose queries and keys
/// are both transformed chooses as before; what it changes is how evenly a group fills its scale.
void hadamard(std::span<float> row) noexcept;

}  // namespace lemma::algorithm
