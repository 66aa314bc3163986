// SPDX-License-Identifier: Apache-2.0
// Products with quantized weights on tiles of bytes give the bits of AVX-512, whose vectors they
// use: so they are compared to the bit, on tiles in plain C++, and on AMX where LEMMA_TEST_AMX=1
// says so. What the bits have to be is project_test.cpp's.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels/kernel_test_data.hpp"

namespace lemma::cpu {
namespace {

using weights::Format;

class Int8TilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<base::Isa> isas = base::tested_isas();
    const auto has = [&](base::Isa isa) {
      return std::find(isas.begin(), isas.end(), isa) != isas.end();
    };
    if (!has(base::Isa::kAvx512)) GTEST_SKIP() << "the vectors beside the tiles are of AVX-512";
    tested_.push_back(&kEmulatedTilesKernels);
    if (has(base::Isa::kAmxInt8)) tested_.push_back(&kAmxInt8Kernels);
  }

  /// `count` rows by both, into rows of more outputs than there are.
  void compare(TestMatrix& m, TestRows& rows, std::size_t count) {
    const std::size_t outputs = m.matrix.rows, stride = outputs + 3;
    const auto kernel = static_cast<std::size_t>(kernel_of(m.matrix.format));
    GuardedMemory<float> want(count * stride), got(count * stride);
    ProjectJob job;
    job.panels = m.panels.data();
    job.panel_bytes = m.panel;
    job.outputs = outputs;
    job.cols = m.matrix.cols;
    job.rows = count;
    job.quantized = rows.quantized();
    job.out_stride = stride;
    const auto run = [&](GuardedMemory<float>& out, void (*project)(const ProjectJob&)) {
      std::fill(out.begin(), out.end(), 77.f);
      job.out = out.data();
      project(job);
    };
    run(want, kAvx512Kernels.project[kernel][1]);
    for (const Int8Kernels* kernels : tested_) {
      run(got, kernels->project[kernel]);
      ASSERT_EQ(0, std::memcmp(got.data(), want.data(), want.size() * sizeof(float)))
          << kernels->name << ", " << weights::traits(m.matrix.format).name << ", " << outputs
          << "x" << m.matrix.cols << ", " << count << " rows";
    }
  }

  /// The last `count` rows of memory that ends in a guard page.
  void compare(Format format, std::size_t outputs, std::size_t cols,
               const std::vector<std::size_t>& counts) {
    Numbers numbers(outputs * 131 + cols);
    TestMatrix m(format, outputs, cols, numbers);
    for (const std::size_t count : counts) {
      TestRows rows(count, cols);
      numbers.fill({rows.x.data(), rows.x.size()});
      kAvx512Kernels.quantize(rows.x.data(), count * cols, rows.quantized());
      compare(m, rows, count);
      if (HasFatalFailure()) return;
    }
  }

  static std::vector<Format> formats() {
    std::vector<Format> formats;
    for (const Format format : weights::kFormats) {
      if (takes_int8(kernel_of(format))) formats.push_back(format);
    }
    return formats;
  }
  static std::size_t block(Format format) { return weights::traits(format).block_elements; }

  std::vector<const Int8Kernels*> tested_;
};

TEST_F(Int8TilesTest, GiveTheBitsOfAvx512ForAnyNumberOfRows) {
  const char* const deep = std::getenv("LEMMA_DEEP");
  std::vector<std::size_t> counts = {1, 15, 16, 17, 23, 24, 25, 31, 32, 33, 40, 57};
  if (deep != nullptr && std::string_view(deep) == "1") {
    counts.clear();
    for (std::size_t count = 1; count <= 130; ++count) counts.push_back(count);
  } else {
    std::puts("  left out: every number of rows up to 130 (LEMMA_DEEP=1)");
  }
  for (const Format format : formats()) {
    // Two units of columns that are packed apart, of which the last is not whole.
    compare(format, 35, 768, counts);
  }
}

TEST_F(Int8TilesTest, GiveTheBitsOfAvx512ForAnyShape) {
  for (const Format format : formats()) {
    for (const std::size_t outputs : {1, 16, 17, 33, 48, 65, 83}) {
      compare(format, outputs, 256, {19});
    }
    // Groups: a few, one unit and a bit, two blocks that are expanded apart, of which the last has
    // a unit or less.
    const std::size_t size = block(format);
    for (const std::size_t groups : {1, 2, 3, 7, 8, 16, 17, 24, 64, 67, 80, 96}) {
      if (groups * kGroup % size == 0) compare(format, 17, groups * kGroup, {35});
    }
  }
}

TEST_F(Int8TilesTest, GiveTheBitsOfAvx512ForGroupsThatAreNotFinite) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Format format : formats()) {
    const std::size_t cols = 512, count = 21;
    Numbers numbers(5);
    TestMatrix m(format, 40, cols, numbers);
    TestRows rows(count, cols);
    numbers.fill({rows.x.data(), rows.x.size()});
    rows.x[3 * cols + 40] = kNaN;
    rows.x[7 * cols + 500] = kInfinity;
    rows.x[20 * cols] = -kInfinity;
    std::fill_n(rows.x.data() + 9 * cols, cols, kNaN);
    std::fill_n(rows.x.data() + 10 * cols, cols, 0.f);
    std::fill_n(rows.x.data() + 11 * cols, cols, 3e4f);
    std::fill_n(rows.x.data() + 12 * cols, cols, -1e-30f);
    kAvx512Kernels.quantize(rows.x.data(), count * cols, rows.quantized());
    compare(m, rows, count);
  }
}

TEST_F(Int8TilesTest, GiveTheBitsOfAvx512ForTheLargestCodes) {
  // Every byte of a file's blocks the same, scales included, and activations at their ends.
  for (const Format format : formats()) {
    const weights::FormatTraits& traits = weights::traits(format);
    const std::size_t cols = 256, outputs = 16, count = 18;
    for (const int fill : {0x00, 0x3c, 0x7b, 0x80, 0xbb}) {
      Numbers numbers(6);
      TestMatrix m(format, outputs, cols, numbers);
      std::fill(m.bytes.begin(), m.bytes.end(), std::byte(fill));
      pack_panel(m.matrix, 0, m.panels.data());
      TestRows rows(count, cols);
      for (std::size_t i = 0; i < count * cols; ++i) {
        rows.x[i] = (i / cols + (i % cols) / 37) % 2 == 0 ? 127.f : -127.f;
      }
      kAvx512Kernels.quantize(rows.x.data(), count * cols, rows.quantized());
      compare(m, rows, count);
      ASSERT_FALSE(HasFatalFailure()) << traits.name << " " << fill;
    }
  }
}

}  // namespace
}  // namespace lemma::cpu
