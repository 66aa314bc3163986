// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels/kernel_test_data.hpp"
#include "backend/cpu/kernels/tiles_emulated.hpp"

namespace lemma::cpu {
namespace {

using weights::Format;

/// A table to test: of an instruction set, or the kernels for AMX on tiles in plain C++.
struct Tested {
  std::string name;
  const KernelTable* table;
};
void PrintTo(const Tested& tested, std::ostream* out) {
  *out << tested.name;
}

const KernelTable& emulated_amx() {
  static constexpr EnteredKernels kEmulated =
      tile_kernels<EmulatedTiles, kScalarKernels>("amx emulated");
  static const KernelTable table = with_entered(kScalarKernels, kEmulated);
  return table;
}

/// The kernels for AVX-VNNI, with its instruction in the encoding of AVX-512, where that is there.
#if defined(__x86_64__)
const KernelTable* evex_vnni() {
  const base::CpuFeatures& f = base::cpu_features();
  if (!f.avx2 || !f.fma || !f.f16c || !f.avx512f || !f.avx512vl || !f.avx512vnni) return nullptr;
  static const KernelTable table = with_int8(kAvx2Kernels, kEvexVnniKernels);
  return &table;
}
#else
const KernelTable* evex_vnni() {
  return nullptr;
}
#endif

/// The kernels for AMX of int8, on tiles in plain C++, where AVX-512 is there.
const KernelTable* emulated_amxint8() {
#if defined(__x86_64__)
  for (const base::Isa isa : base::tested_isas()) {
    if (isa != base::Isa::kAvx512) continue;
    static const KernelTable table = with_int8(kAvx512Kernels, kEmulatedTilesKernels);
    return &table;
  }
#endif
  return nullptr;
}

std::vector<Tested> tested_tables() {
  std::vector<Tested> tables = {{"emulated_amx", &emulated_amx()}};
  if (evex_vnni() != nullptr) tables.push_back({"evexvnni", evex_vnni()});
  if (emulated_amxint8() != nullptr) tables.push_back({"emulated_amxint8", emulated_amxint8()});
  for (const base::Isa isa : base::tested_isas()) {
    tables.push_back({std::string(base::to_string(isa)), &kernels(isa)});
  }
  return tables;
}

/// Rows [0, count) of `rows` with all of `m`, into `out` [count, outputs].
ProjectJob job_of(TestMatrix& m, TestRows& rows, std::size_t count, std::span<float> out) {
  ProjectJob job;
  job.panels = m.panels.data();
  job.panel_bytes = m.panel;
  job.outputs = m.matrix.rows;
  job.cols = m.matrix.cols;
  job.rows = count;
  job.x = rows.x.data();
  job.x_stride = m.matrix.cols;
  job.quantized = rows.quantized();
  job.out = out.data();
  job.out_stride = m.matrix.rows;
  return job;
}

class ProjectTest : public ::testing::TestWithParam<Tested> {
 protected:
  const KernelTable& table() const { return *GetParam().table; }
  /// What entered rows are rounded to for a format, and its weights with them.
  EnteredRows entered(Format format) const {
    return table().entered[static_cast<std::size_t>(kernel_of(format))];
  }
  bool rounds(Format format, std::size_t token_class = 0) const {
    return token_class == 0 && entered(format) != EnteredRows::kAsGenerated;
  }

  /// Runs `format`'s kernel for rows [first, first + count) of `rows`.
  void project(TestMatrix& m, TestRows& rows, std::size_t first, std::size_t count,
               std::span<float> out, std::size_t token_class = 0) {
    const std::size_t cols = m.matrix.cols, groups = first * (cols / kGroup);
    ProjectJob job = job_of(m, rows, count, out);
    job.x += first * cols;
    job.quantized = {
        rows.codes.data() + first * cols, rows.scales.data() + groups,
        rows.scaled_sums.data() + groups, rows.sums.data() + groups * 3,
        table().bf16_rows && cols % kGroup == 0 ? rows.bf16.data() + first * cols : nullptr};
    table().project[static_cast<std::size_t>(kernel_of(m.matrix.format))][token_class](job);
  }

  void quantize(TestRows& rows, std::size_t count) {
    if (count / kGroup * kGroup == count) {
      table().quantize(rows.x.data(), count, rows.quantized());
    }
  }
};

double nearest_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

/// Rows of weights, or of activations that meet them in floats, as the kernel sees them.
std::vector<double> seen(EnteredRows entered, std::span<const float> x, std::size_t cols) {
  std::vector<double> numbers(x.begin(), x.end());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    if (entered == EnteredRows::kWhole) {
      const WholeRow whole(x.subspan(row, cols));
      for (std::size_t k = 0; k < cols; ++k) numbers[row + k] = whole.number(k);
    } else if (entered == EnteredRows::kBf16) {
      for (std::size_t k = 0; k < cols; ++k) numbers[row + k] = nearest_bf16(x[row + k]);
    }
  }
  return numbers;
}

/// Activations as the kernel sees them: int8 code times scale, or as above.
std::vector<double> seen_rows(Format format, EnteredRows entered, TestRows& rows,
                              std::size_t cols) {
  std::vector<double> numbers = seen(entered, {rows.x.data(), rows.x.size()}, cols);
  if (entered != EnteredRows::kAsGenerated || !takes_int8(kernel_of(format))) return numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = double(rows.codes[i]) * double(rows.scales[i / kGroup]);
  return numbers;
}

/// What f32 arithmetic may lose: one rounding of 2^-24 a fused multiply-add of the running sum,
/// which never exceeds the sum of the terms' magnitudes; f32 chains have K of them, int8 ones at
/// most three a group (with halves and minimums) and two for the scales. Where quantized weights
/// are rounded to bf16 after an f32 product or two, a weight may round to the neighbour of what the
/// exact value rounds to, one unit of 2^-8 away.
double rounding(Format format, std::size_t cols, double magnitude, bool rounded) {
  const bool quantized = takes_int8(kernel_of(format));
  const double steps = quantized ? 3.0 * double(cols) / kGroup + 3.0 : double(cols) + 2.0;
  const double weights = rounded && quantized ? 0x1p-8 : 0.0;
  return (steps * 0x1p-24 + weights) * magnitude + 1e-36;
}

bool has_minimum(Format format) {
  return format == Format::kQ4_K || format == Format::kQ4_1 || format == Format::kQ5_1 ||
         format == Format::kQ2_K || format == Format::kQ5_K;
}

struct Shape {
  std::size_t outputs, cols;
};

std::vector<Shape> shapes(Format format) {
  const std::size_t block = weights::traits(format).block_elements;
  if (block == 1) return {{1, 1}, {5, 7}, {16, 33}, {17, 64}, {40, 19}, {64, 261}, {83, 100}};
  return {{1, block},  {5, block},      {16, 2 * block}, {17, 3 * block},
          {40, block}, {64, 5 * block}, {83, 2 * block}};
}

TEST_P(ProjectTest, AgreesWithTheSumInF64ForEveryFormatShapeAndAlignment) {
  for (const Format format : weights::kFormats) {
    ASSERT_TRUE(has_kernel(format)) << weights::traits(format).name;
    for (const Shape shape : shapes(format)) {
      for (const std::size_t shift : {0, 4, 60}) {
        const std::size_t count = 11;
        Numbers numbers(shape.outputs * 131 + shape.cols + shift);
        TestMatrix m(format, shape.outputs, shape.cols, numbers, shift);
        TestRows rows(count, shape.cols, shift);
        numbers.fill({rows.x.data(), rows.x.size()}, 3.f);
        quantize(rows, count * shape.cols);
        GuardedMemory<float> out(count * shape.outputs, shift);
        project(m, rows, 0, count, {out.data(), out.size()});
        const bool rounded = rounds(format);
        const std::vector<double> w = seen(entered(format), m.decoded, shape.cols);
        const std::vector<double> x = seen_rows(format, entered(format), rows, shape.cols);
        for (std::size_t r = 0; r < count; ++r) {
          for (std::size_t o = 0; o < shape.outputs; ++o) {
            double want = 0, magnitude = 0;
            for (std::size_t k = 0; k < shape.cols; ++k) {
              const double term = w[o * shape.cols + k] * x[r * shape.cols + k];
              want += term;
              magnitude += std::fabs(term);
            }
            // Adding scale * q and subtracting a minimum: the terms are larger than their sum.
            if (has_minimum(format)) magnitude *= 8;
            ASSERT_NEAR(out[r * shape.outputs + o], want,
                        rounding(format, shape.cols, magnitude, rounded))
                << weights::traits(format).name << " " << shape.outputs << "x" << shape.cols
                << " row " << r << " output " << o << " shift " << shift;
          }
        }
      }
    }
  }
}

TEST_P(ProjectTest, GivesARowTheSameBitsInAnyCompany) {
  for (const Format format : weights::kFormats) {
    const std::size_t cols = 512, outputs = 83, most = 17;
    Numbers numbers(7);
    TestMatrix m(format, outputs, cols, numbers);
    TestRows rows(most, cols);
    numbers.fill({rows.x.data(), rows.x.size()});
    quantize(rows, most * cols);
    for (const std::size_t token_class : {0, 1}) {
      if (token_class == 1 && !rounds(format)) continue;  // the same kernel
      std::vector<float> alone(most * outputs);
      for (std::size_t r = 0; r < most; ++r) {
        project(m, rows, r, 1, std::span(alone).subspan(r * outputs, outputs), token_class);
      }
      for (std::size_t count = 2; count <= most; ++count) {
        std::vector<float> together(count * outputs);
        project(m, rows, most - count, count, together, token_class);
        ASSERT_EQ(0, std::memcmp(together.data(), alone.data() + (most - count) * outputs,
                                 together.size() * sizeof(float)))
            << weights::traits(format).name << ", " << count << " rows";
      }
    }
  }
}

TEST_P(ProjectTest, GivesARowTheSameBitsAmongMany) {
  // Many rows are multiplied with panels that were expanded, two beside each other and some columns
  // at a time: here a last panel without a neighbour, and columns for a second time.
  for (const Format format : weights::kFormats) {
    const std::size_t cols = 2304, outputs = 43, most = 61;
    Numbers numbers(8);
    TestMatrix m(format, outputs, cols, numbers);
    TestRows rows(most, cols);
    numbers.fill({rows.x.data(), rows.x.size()});
    quantize(rows, most * cols);
    std::vector<float> together(most * outputs), alone(outputs);
    for (const std::size_t count : {most, std::size_t{49}, std::size_t{26}}) {
      project(m, rows, 0, count, together);
      for (std::size_t r = 0; r < count; r += 8) {
        project(m, rows, r, 1, alone);
        ASSERT_EQ(0,
                  std::memcmp(together.data() + r * outputs, alone.data(), outputs * sizeof(float)))
            << weights::traits(format).name << ", row " << r << " of " << count;
      }
    }
  }
}

TEST_P(ProjectTest, GivesTheSameBitsFromRowsThatWereRoundedBefore) {
  if (!table().bf16_rows) return;  // whole numbers: project_whole_test.cpp
  for (const Format format : {Format::kF16, Format::kBF16}) {
    const std::size_t cols = 1088, outputs = 83, count = 37;
    Numbers numbers(12);
    TestMatrix m(format, outputs, cols, numbers);
    TestRows rows(count, cols);
    numbers.fill({rows.x.data(), rows.x.size()});
    quantize(rows, count * cols);
    std::vector<float> before(count * outputs), here(count * outputs);
    project(m, rows, 0, count, before);
    ProjectJob job = job_of(m, rows, count, here);
    job.quantized = {};
    table().project[static_cast<std::size_t>(kernel_of(format))][0](job);
    EXPECT_EQ(before, here) << weights::traits(format).name;
  }
}

#if defined(__x86_64__)
TEST_P(ProjectTest, GivesTheBitsOfAvx2OnEveryLevelOfX86) {
  const std::vector<base::Isa> isas = base::tested_isas();
  if (table().project[0][0] == kScalarKernels.project[0][0]) return;  // it has no fused sums
  if (std::find(isas.begin(), isas.end(), base::Isa::kAvx2) == isas.end()) return;
  for (const Format format : weights::kFormats) {
    const auto kernel = static_cast<std::size_t>(kernel_of(format));
    if (!takes_int8(kernel_of(format))) continue;
    const std::size_t cols = 2304, outputs = 33, count = 53;  // an expanded panel, twice
    Numbers numbers(13);
    TestMatrix m(format, outputs, cols, numbers);
    TestRows rows(count, cols);
    numbers.fill({rows.x.data(), rows.x.size()});
    quantize(rows, count * cols);
    for (const std::size_t some : {std::size_t{1}, std::size_t{7}, count}) {
      std::vector<float> got(some * outputs), want(some * outputs);
      project(m, rows, 0, some, got, 1);
      kAvx2Kernels.project[kernel][1](job_of(m, rows, some, want));
      ASSERT_EQ(0, std::memcmp(got.data(), want.data(), got.size() * sizeof(float)))
          << weights::traits(format).name << ", " << some << " rows";
    }
  }
}

TEST(Vbmi, GivesTheBitsOfAvx512WithoutIt) {
  if (!base::cpu_features().avx512vbmi) GTEST_SKIP() << "the processor has no VBMI";
  const KernelTable& with = kernels(base::Isa::kAvx512);
  for (const Format format : weights::kFormats) {
    const auto at = static_cast<std::size_t>(kernel_of(format));
    if (with.project[at][1] == kAvx512Kernels.project[at][1]) continue;
    const std::size_t cols = 768, outputs = 43, most = 50;
    Numbers numbers(13);
    TestMatrix m(format, outputs, cols, numbers);
    TestRows rows(most, cols);
    numbers.fill({rows.x.data(), rows.x.size()});
    kScalarKernels.quantize(rows.x.data(), most * cols, rows.quantized());
    for (const std::size_t count : {1, 2, 7, 50}) {
      std::vector<float> out[2];
      for (const bool vbmi : {false, true}) {
        out[vbmi].resize(count * outputs);
        (vbmi ? with : kAvx512Kernels).project[at][1](job_of(m, rows, count, out[vbmi]));
      }
      ASSERT_EQ(out[0], out[1]) << weights::traits(format).name << ", " << count << " rows";
    }
  }
}
#endif

TEST_P(ProjectTest, GivesAnOutputTheSameBitsInAnyRangeOfPanels) {
  for (const Format format : weights::kFormats) {
    const std::size_t cols = 256, outputs = 96, count = 3;
    Numbers numbers(9);
    TestMatrix m(format, outputs, cols, numbers);
    TestRows rows(count, cols);
    numbers.fill({rows.x.data(), rows.x.size()});
    quantize(rows, count * cols);
    std::vector<float> whole(count * outputs), part(count * outputs);
    project(m, rows, 0, count, whole);
    for (std::size_t first = 0; first < outputs; first += kPanelRows) {
      ProjectJob job = job_of(m, rows, count, part);
      job.panels += first / kPanelRows * m.panel;
      job.outputs = kPanelRows;
      job.out += first;
      table().project[static_cast<std::size_t>(kernel_of(format))][0](job);
    }
    ASSERT_EQ(whole, part) << weights::traits(format).name;
  }
}

TEST_P(ProjectTest, StaysFiniteForLargeTinyAndZeroActivations) {
  for (const Format format : weights::kFormats) {
    const std::size_t cols = 256, outputs = 17, count = 9;
    Numbers numbers(11);
    TestMatrix m(format, outputs, cols, numbers);
    for (const float scale : {3e4f, 1e-30f, 1e-42f, 0.f}) {
      TestRows rows(count, cols);
      numbers.fill({rows.x.data(), rows.x.size()}, scale);
      for (std::size_t i = 0; i < kGroup; ++i) rows.x[i] = 0.f;  // one group of zeros
      quantize(rows, count * cols);
      std::vector<float> out(count * outputs);
      project(m, rows, 0, count, out);
      for (const float y : out) ASSERT_TRUE(std::isfinite(y)) << weights::traits(format).name;
    }
  }
}

TEST_P(ProjectTest, TakesTheExtremeCodesOfEveryFormat) {
  // Every byte pattern that a file may hold, against the largest activations: where sums of pairs
  // saturate in 16 bits, this shows it.
  for (const Format format :
       {Format::kQ8_0, Format::kQ4_0, Format::kQ5_0, Format::kIQ4_NL, Format::kIQ4_XS,
        Format::kIQ3_XXS, Format::kIQ3_S, Format::kIQ2_S, Format::kIQ1_S}) {
    const weights::FormatTraits& traits = weights::traits(format);
    const std::size_t cols = std::max<std::size_t>(64, traits.block_elements), outputs = 16,
                      row = weights::row_bytes(format, cols);
    for (const int fill : {0x00, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> bytes(outputs * row, std::byte(fill));
      for (std::size_t at = 0; at < bytes.size(); at += traits.block_bytes) {
        bytes[at] = std::byte{0x00};
        bytes[at + 1] = std::byte{0x3c};  // scale 1
      }
      const weights::Matrix matrix{format, outputs, cols, bytes.data(), nullptr, ""};
      std::vector<std::byte> panel(panel_bytes(format, cols));
      pack_panel(matrix, 0, panel.data());
      std::vector<float> decoded(cols);
      traits.dequantize(bytes.data(), decoded);
      float sum = 0.f;  // of small integers: exact
      for (const double w : seen(entered(format), decoded, cols)) sum += float(w);
      for (const float sign : {1.f, -1.f}) {
        TestRows rows(1, cols);
        std::fill(rows.x.begin(), rows.x.end(), sign * 127.f);
        quantize(rows, cols);
        float out[kPanelRows];
        ProjectJob job;
        job.panels = panel.data();
        job.panel_bytes = panel.size();
        job.outputs = outputs;
        job.cols = cols;
        job.rows = 1;
        job.x = rows.x.data();
        job.x_stride = cols;
        job.quantized = rows.quantized();
        job.out = out;
        job.out_stride = kPanelRows;
        table().project[static_cast<std::size_t>(kernel_of(format))][0](job);
        for (const float y : out) {
          // The tables' values are no powers of two: their sums may need more than 24 bits.
          // Tiles add the columns of an activation in another order, in more than 24 bits as well.
          const bool exact = format <= Format::kQ5_0 && !rounds(format);
          const float slack = exact ? 0.f : std::fabs(127.f * sum) * 0x1p-22f;
          ASSERT_NEAR(y, sign * 127.f * sum, slack) << traits.name << " " << fill;
        }
      }
    }
  }
}

TEST_P(ProjectTest, TakesRowsOfTheLargestCodesOfEveryFormat) {
  // Nearly all weights of a group at one end of what their format holds, the activations at theirs:
  // whatever is summed in 16 bits first is as large as it gets. 64 rows read an expanded panel.
  const std::pair<float, float> patterns[] = {
      {1.f, -0.97f}, {-1.f, 0.97f}, {0.f, 1.f}, {0.f, -1.f}, {1.f, 1.f}};
  for (const Format format : weights::kFormats) {
    const weights::FormatTraits& traits = weights::traits(format);
    if (!takes_int8(kernel_of(format))) continue;
    for (const auto& [one, others] : patterns) {
      const std::size_t cols = traits.block_elements == 256 ? 256 : 64, count = 64;
      std::vector<float> values(kPanelRows * cols, others), decoded(values.size());
      for (std::size_t i = 0; i < values.size(); i += 16) values[i] = one;
      std::vector<std::byte> bytes(kPanelRows * weights::row_bytes(format, cols));
      traits.quantize(values, bytes.data());
      traits.dequantize(bytes.data(), decoded);
      GuardedMemory<std::byte> panel(panel_bytes(format, cols));
      pack_panel({format, kPanelRows, cols, bytes.data(), nullptr, ""}, 0, panel.data());
      TestRows rows(count, cols);
      for (std::size_t i = 0; i < count * cols; ++i) rows.x[i] = i / cols % 2 == 0 ? 127.f : -127.f;
      quantize(rows, count * cols);
      std::vector<float> out(count * kPanelRows);
      double sum = 0, magnitude = 0;
      for (const double weight : seen(entered(format), std::span(decoded).first(cols), cols)) {
        sum += 127.0 * weight;
        magnitude += std::fabs(127.0 * weight);
      }
      if (has_minimum(format)) magnitude = magnitude * 8 + 127.0 * double(cols);
      ProjectJob job;
      job.panels = panel.data();
      job.panel_bytes = panel_bytes(format, cols);
      job.outputs = kPanelRows;
      job.cols = cols;
      job.x = rows.x.data();
      job.x_stride = cols;
      job.quantized = rows.quantized();
      job.out = out.data();
      job.out_stride = kPanelRows;
      for (const std::size_t some : {std::size_t{2}, count}) {
        job.rows = some;
        table().project[static_cast<std::size_t>(kernel_of(format))][0](job);
        for (std::size_t i = 0; i < some * kPanelRows; ++i) {
          ASSERT_NEAR(out[i], i / kPanelRows % 2 == 0 ? sum : -sum,
                      rounding(format, cols, magnitude, rounds(format)))
              << traits.name << ", " << some << " rows of " << others;
        }
      }
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<Tested>& tested) {
  return tested.param.name;
}
INSTANTIATE_TEST_SUITE_P(Isa, ProjectTest, ::testing::ValuesIn(tested_tables()), name_of);

}  // namespace
}  // namespace lemma::cpu
