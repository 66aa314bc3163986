// SPDX-License-Identifier: Apache-2.0
// What the kernel tests share: seeded numbers, weights in a format with their decoded values, and
// the fixture that runs a test for every instruction set of this machine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/kernels/guarded_memory.hpp"
#include "backend/cpu/kernels/select.hpp"
#include "backend/cpu/packing.hpp"

namespace lemma::cpu {

/// xorshift64*, so that every run and machine sees the same numbers.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t bits() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  /// Uniform in [-1, 1).
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-23f - 1.f; }
  /// Roughly normal, with variance 1.
  float normal() { return (uniform() + uniform() + uniform()) * 1.f; }
  void fill(std::span<float> out, float scale = 1.f) {
    for (float& x : out) x = normal() * scale;
  }

 private:
  std::uint64_t state_;
};

/// A random matrix in a format: its bytes, what they decode to, and the packed panels behind a
/// guard page.
struct TestMatrix {
  TestMatrix(weights::Format format, std::size_t rows, std::size_t cols, Numbers& numbers,
             std::size_t shift = 0)
      : panel(panel_bytes(format, cols)),
        decoded(rows * cols),
        panels((rows + kPanelRows - 1) / kPanelRows * panel, shift) {
    const weights::FormatTraits& traits = weights::traits(format);
    std::vector<float> values(rows * cols);
    numbers.fill(values, 0.25f);
    bytes.resize(rows * weights::row_bytes(format, cols));
    traits.quantize(values, bytes.data());
    traits.dequantize(bytes.data(), decoded);
    matrix.format = format;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.bytes = bytes.data();
    for (std::size_t r = 0; r < rows; r += kPanelRows) {
      pack_panel(matrix, r, panels.data() + r / kPanelRows * panel);
    }
  }

  std::size_t panel;  ///< bytes
  std::vector<std::byte> bytes;
  std::vector<float> decoded;  ///< [rows, cols]
  GuardedMemory<std::byte> panels;
  weights::Matrix matrix;
};

/// Activations and their int8 form, each behind a guard page.
struct TestRows {
  TestRows(std::size_t rows, std::size_t cols, std::size_t shift = 0)
      : x(rows * cols, shift),
        codes(rows * cols, shift),
        scales(rows * (cols / kGroup), shift),
        scaled_sums(rows * (cols / kGroup), shift),
        sums(rows * (cols / kGroup) * 3, shift),
        bf16(rows * cols, shift) {}

  QuantizedRows quantized() {
    return {codes.data(), scales.data(), scaled_sums.data(), sums.data(), bf16.data()};
  }

  GuardedMemory<float> x;
  GuardedMemory<std::int8_t> codes;
  GuardedMemory<float> scales, scaled_sums;
  GuardedMemory<std::int32_t> sums;
  GuardedMemory<std::uint16_t> bf16;
};

/// A row in whole numbers of 13 bits, by the words of project_whole.hpp: 128 columns share a scale.
struct WholeRow {
  explicit WholeRow(std::span<const float> x) : codes(x.size()) {
    for (std::size_t first = 0; first < x.size(); first += 128) {
      const std::size_t end = std::min(first + 128, x.size());
      float largest = 0.f;
      for (std::size_t i = first; i < end; ++i) largest = std::fmax(largest, std::fabs(x[i]));
      const bool none = largest < 0x1p-100f;
      const float inverse = none ? 0.f : 4095.f / largest;
      scales.push_back(none ? 0.f : largest / 4095.f);
      for (std::size_t i = first; i < end; ++i)
        codes[i] = static_cast<std::int64_t>(std::rint(double(x[i]) * double(inverse)));
    }
  }
  double number(std::size_t i) const { return double(codes[i]) * double(scales[i / 128]); }

  std::vector<std::int64_t> codes;
  std::vector<float> scales;
};

class KernelTest : public ::testing::TestWithParam<base::Isa> {
 protected:
  const KernelTable& table() const { return kernels(GetParam()); }
};

inline std::string isa_name(const ::testing::TestParamInfo<base::Isa>& info) {
  return std::string(base::to_string(info.param));
}

inline std::vector<base::Isa> testable_isas() {
  return base::tested_isas();
}

}  // namespace lemma::cpu

/// Instantiates `suite` for every instruction set of this machine, the name showing which.
#define LEMMA_FOR_EACH_ISA(suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(Isa, suite, ::testing::ValuesIn(::lemma::cpu::testable_isas()), \
                           ::lemma::cpu::isa_name)
