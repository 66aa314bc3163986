// SPDX-License-Identifier: Apache-2.0
// For tests: the tiles of AMX in plain C++, after the definitions that Intel's manual gives of
// LDTILECFG, TILELOADD, TILESTORED, TILEZERO and TDPBF16PS. What the instructions refuse (a tile
// that is not configured, shapes that do not fit) is refused here too.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/project_tiles.hpp"
#include "base/check.hpp"

namespace lemma::cpu {

class EmulatedTiles {
 public:
  void shape(std::size_t upper, std::size_t lower) {
    LEMMA_CHECK(upper >= 1 && upper <= 16 && lower <= 16);
    if (upper == rows_[0] && lower == rows_[2]) return;
    const std::size_t rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    std::copy_n(rows, 8, rows_);
    std::memset(bytes_, 0, sizeof bytes_);
  }
  void release() { std::fill_n(rows_, 8, std::size_t{0}); }
  template <int T>
  void zero() {
    LEMMA_CHECK(rows_[T] > 0);
    std::memset(bytes_[T], 0, sizeof bytes_[T]);
  }
  /// The rows that are configured; those behind them become zero.
  template <int T>
  void load(const void* from, std::size_t stride) {
    zero<T>();
    for (std::size_t r = 0; r < rows_[T]; ++r) {
      std::memcpy(bytes_[T][r], static_cast<const std::byte*>(from) + r * stride, 64);
    }
  }
  template <int T>
  void store(void* to, std::size_t stride) {
    LEMMA_CHECK(rows_[T] > 0);
    for (std::size_t r = 0; r < rows_[T]; ++r) {
      std::memcpy(static_cast<std::byte*>(to) + r * stride, bytes_[T][r], 64);
    }
  }
  template <int Sums, int Activations, int Weights>
  void add_product() {
    LEMMA_CHECK(rows_[Sums] == rows_[Activations] && rows_[Sums] > 0 && rows_[Weights] == 16);
    for (std::size_t m = 0; m < rows_[Sums]; ++m) {
      for (std::size_t n = 0; n < 16; ++n) {
        float chains[2] = {0.f, 0.f};
        for (std::size_t k = 0; k < 16; ++k) {
          for (std::size_t i = 0; i < 2; ++i) {
            const float a = half(bytes_[Activations][m] + (2 * k + i) * 2);
            const float b = half(bytes_[Weights][k] + (2 * n + i) * 2);
            chains[i] = flushed(std::fma(a, b, chains[i]));
          }
        }
        float sum;
        std::memcpy(&sum, bytes_[Sums][m] + n * 4, 4);
        sum = flushed(flushed(sum) + flushed(chains[0] + chains[1]));
        std::memcpy(bytes_[Sums][m] + n * 4, &sum, 4);
      }
    }
  }

 private:
  /// Subnormal numbers become zeros of their sign.
  static float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x; }
  static float half(const std::byte* at) {
    std::uint16_t bits;
    std::memcpy(&bits, at, 2);
    float x;
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    std::memcpy(&x, &wide, 4);
    return flushed(x);
  }

  std::size_t rows_[8] = {};
  std::byte bytes_[8][16][64] = {};
};

}  // namespace lemma::cpu
