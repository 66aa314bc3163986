// SPDX-License-Identifier: Apache-2.0
// For tests: the tiles of AMX in plain C++, after the definitions that Intel's manual gives of
// LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS and TDPBSSD. What the instructions refuse
// (a tile that is not configured, shapes that do not fit, one tile twice) is refused here too.
//
// Without a name the namespace keeps this local to the file that includes it, some of which are
// compiled for one instruction set; so it includes nothing of the standard library.
#pragma once

#include "backend/cpu/kernels/project_tiles.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

class EmulatedTiles {
 public:
  void shape(std::size_t upper, std::size_t lower) {
    LEMMA_CHECK(upper >= 1 && upper <= 16 && lower <= 16);
    if (upper == rows_[0] && lower == rows_[2]) return;
    const std::size_t rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    configure(rows, 64);
  }
  void shape_bytes(std::size_t columns) {
    LEMMA_CHECK(columns >= 4 && columns <= 64 && columns % 4 == 0);
    const std::size_t rows[8] = {16, 16, 16, 16, 16, 16, columns / 4, columns / 4};
    configure(rows, columns);
  }
  void release() {
    const std::size_t none[8] = {};
    configure(none, 0);
  }
  template <int T>
  void zero() {
    LEMMA_CHECK(rows_[T] > 0);
    __builtin_memset(bytes_[T], 0, sizeof bytes_[T]);
  }
  /// What is configured; what lies behind it becomes zero.
  template <int T>
  void load(const void* from, std::size_t stride) {
    zero<T>();
    for (std::size_t r = 0; r < rows_[T]; ++r) {
      __builtin_memcpy(bytes_[T][r], static_cast<const std::byte*>(from) + r * stride,
                       row_bytes_[T]);
    }
  }
  template <int T>
  void store(void* to, std::size_t stride) {
    LEMMA_CHECK(rows_[T] > 0);
    for (std::size_t r = 0; r < rows_[T]; ++r) {
      __builtin_memcpy(static_cast<std::byte*>(to) + r * stride, bytes_[T][r], row_bytes_[T]);
    }
  }
  template <int Sums, int Activations, int Weights>
  void add_product() {
    check_shapes<Sums, Activations, Weights>();
    for (std::size_t m = 0; m < rows_[Sums]; ++m) {
      for (std::size_t n = 0; n < row_bytes_[Sums] / 4; ++n) {
        float chains[2] = {0.f, 0.f};
        for (std::size_t k = 0; k < rows_[Weights]; ++k) {
          for (std::size_t i = 0; i < 2; ++i) {
            const float a = half(bytes_[Activations][m] + (2 * k + i) * 2);
            const float b = half(bytes_[Weights][k] + (2 * n + i) * 2);
            chains[i] = flushed(__builtin_fmaf(a, b, chains[i]));
          }
        }
        float sum;
        __builtin_memcpy(&sum, bytes_[Sums][m] + n * 4, 4);
        sum = flushed(flushed(sum) + flushed(chains[0] + chains[1]));
        __builtin_memcpy(bytes_[Sums][m] + n * 4, &sum, 4);
      }
    }
  }
  /// Into sums of 32 bits, which wrap.
  template <int Sums, int Activations, int Weights>
  void add_bytes() {
    check_shapes<Sums, Activations, Weights>();
    for (std::size_t m = 0; m < rows_[Sums]; ++m) {
      for (std::size_t k = 0; k < rows_[Weights]; ++k) {
        std::int8_t a[4], b[64];
        __builtin_memcpy(a, bytes_[Activations][m] + k * 4, 4);
        __builtin_memcpy(b, bytes_[Weights][k], 64);
        for (std::size_t n = 0; n < row_bytes_[Sums] / 4; ++n) {
          std::uint32_t sum;
          __builtin_memcpy(&sum, bytes_[Sums][m] + n * 4, 4);
          for (std::size_t i = 0; i < 4; ++i)
            sum += static_cast<std::uint32_t>(a[i] * b[4 * n + i]);
          __builtin_memcpy(bytes_[Sums][m] + n * 4, &sum, 4);
        }
      }
    }
  }

 private:
  void configure(const std::size_t (&rows)[8], std::size_t activations) {
    for (std::size_t t = 0; t < 8; ++t) {
      rows_[t] = rows[t];
      row_bytes_[t] = rows[t] == 0 ? 0 : t == 4 || t == 5 ? activations : 64;
    }
    __builtin_memset(bytes_, 0, sizeof bytes_);
  }
  template <int Sums, int Activations, int Weights>
  void check_shapes() const {
    LEMMA_CHECK(Sums != Activations && Sums != Weights && Activations != Weights);
    LEMMA_CHECK(rows_[Sums] > 0 && rows_[Sums] == rows_[Activations]);
    LEMMA_CHECK(row_bytes_[Sums] == row_bytes_[Weights]);
    LEMMA_CHECK(row_bytes_[Activations] / 4 == rows_[Weights]);
  }
  /// Subnormal numbers become zeros of their sign.
  static float flushed(float x) {
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.f, x) : x;
  }
  static float half(const std::byte* at) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, at, 2);
    return flushed(__builtin_bit_cast(float, std::uint32_t{bits} << 16));
  }

  std::size_t rows_[8] = {}, row_bytes_[8] = {};
  std::byte bytes_[8][16][64] = {};
};

}  // namespace
}  // namespace lemma::cpu
