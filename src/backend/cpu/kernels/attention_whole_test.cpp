// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kernels/attention_whole.hpp"

#include <cmath>
#include <limits>

#include "backend/cpu/kernels/kernel_test_data.hpp"
#include "base/half.hpp"

namespace lemma::cpu {
namespace {

class AttentionWhole : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const base::Isa isa : testable_isas()) {
      if (kernels(isa).whole_attention != nullptr) whole_ = kernels(isa).whole_attention;
    }
    if (whole_ == nullptr) GTEST_SKIP() << "this processor has no vpdpwssd of AVX-512";
  }
  const WholeAttention& whole() const { return *whole_; }

 private:
  const WholeAttention* whole_ = nullptr;
};

struct Coded {
  std::vector<int> codes;
  float scale = 0.f;
};

/// What the kernels are to do, in plain C++.
Coded coded(std::span<const float> x, float most) {
  Coded out{std::vector<int>(x.size()), 0.f};
  float largest = 0.f;
  for (const float value : x) {
    if (!std::isfinite(value)) largest = std::numeric_limits<float>::quiet_NaN();
    if (!std::isnan(largest)) largest = std::max(largest, std::fabs(value));
  }
  if (std::isnan(largest)) {
    out.scale = largest;
  } else if (largest >= 0x1p-100f) {
    out.scale = largest / most;
    const float inverse = most / largest;
    for (std::size_t i = 0; i < x.size(); ++i) {
      out.codes[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
    }
  }
  return out;
}

int half_of(std::uint32_t pair, std::size_t which) {
  return static_cast<std::int16_t>(pair >> (16 * which));
}

/// Rows of n elements in a form, behind a guard page, and what they decode to.
struct FormRows {
  FormRows(std::size_t form, std::size_t rows, std::size_t n, std::size_t stride)
      : bytes(((rows - 1) * stride + n) * (form == WholeAttention::kF32 ? 4 : 2)),
        decoded(rows * n) {
    Numbers numbers(7 + n);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < n; ++i) {
        float value = numbers.normal() * (r == 2 ? 1e-3f : 3.f);
        if (r == 3) value = 0.f;
        if (r == 5 && i == n - 1) value = std::numeric_limits<float>::infinity();
        if (r == 6 && i == n / 2) value = std::numeric_limits<float>::quiet_NaN();
        const std::uint16_t bits = form == 0 ? base::f32_to_f16(value) : base::f32_to_bf16(value);
        const std::size_t at = r * stride + i;
        if (form == WholeAttention::kF32) {
          std::memcpy(bytes.data() + 4 * at, &value, 4);
        } else {
          std::memcpy(bytes.data() + 2 * at, &bits, 2);
          value = form == 0 ? base::f16_to_f32(bits) : base::bf16_to_f32(bits);
        }
        decoded[r * n + i] = value;
      }
    }
  }
  GuardedMemory<std::byte> bytes;
  std::vector<float> decoded;
};

void expect_scale(float want, float got) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got));
  } else {
    EXPECT_EQ(want, got);
  }
}

TEST_F(AttentionWhole, RoundsQueriesByTheirOwnRuns) {
  for (const std::size_t n : {16u, 64u, 80u, 128u, 144u, 576u}) {
    FormRows rows(WholeAttention::kF32, 8, n, n);
    for (std::size_t r = 0; r < 8; ++r) {
      GuardedMemory<float> x(n);
      std::copy_n(rows.decoded.data() + r * n, n, x.data());
      GuardedMemory<std::uint32_t> pairs(whole_pairs(n));
      GuardedMemory<float> scales(whole_blocks(n));
      whole().round_query(x.data(), n, pairs.data(), scales.data());
      for (std::size_t b = 0; b < n; b += kWholeBlock) {
        const std::size_t count = std::min(kWholeBlock, n - b);
        const Coded want = coded({x.data() + b, count}, 4095.f);
        expect_scale(want.scale, scales[b / kWholeBlock]);
        if (std::isnan(want.scale)) continue;
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(want.codes[i], half_of(pairs[(b + i) / 2], i % 2)) << n << " " << r << " " << i;
        }
      }
      for (std::size_t i = n; i < 2 * pairs.size(); ++i) EXPECT_EQ(0, half_of(pairs[i / 2], i % 2));
    }
  }
}

TEST_F(AttentionWhole, TurnsKeysOfEveryFormToTheCodesOfTheirRows) {
  for (std::size_t form = 0; form < WholeAttention::kForms; ++form) {
    for (const std::size_t n : {16u, 64u, 80u, 144u, 256u}) {
      const std::size_t stride = n + 16;
      FormRows rows(form, kPanelRows, n, stride);
      GuardedMemory<std::uint32_t> panel(whole_pairs(n) * kPanelRows);
      GuardedMemory<float> scales((whole_blocks(n) - 1) * kPiece + kPanelRows);
      whole().turn_keys[form](rows.bytes.data(), stride, n, panel.data(), scales.data(), kPiece);
      for (std::size_t r = 0; r < kPanelRows; ++r) {
        for (std::size_t b = 0; b < n; b += kWholeBlock) {
          const std::size_t count = std::min(kWholeBlock, n - b);
          const Coded want = coded({rows.decoded.data() + r * n + b, count}, 4095.f);
          expect_scale(want.scale, scales[b / kWholeBlock * kPiece + r]);
          if (std::isnan(want.scale)) continue;
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(want.codes[i], half_of(panel[(b + i) / 2 * kPanelRows + r], i % 2))
                << form << " " << n << " " << r << " " << i;
          }
        }
      }
    }
  }
}

TEST_F(AttentionWhole, PairsValuesOfEveryFormAndReadsNoOthers) {
  for (std::size_t form = 0; form < WholeAttention::kForms; ++form) {
    for (const std::size_t n : {12u, 64u, 80u}) {
      for (const auto& [begin, end] : {std::pair{0u, 64u}, {0u, 1u}, {9u, 14u}, {63u, 64u}}) {
        const std::size_t stride = n + 4, width = (n + 15) / 16 * 16, count = end - begin;
        FormRows rows(form, count, n, stride);
        const std::size_t bytes = stride * (form == WholeAttention::kF32 ? 4 : 2);
        GuardedMemory<std::uint32_t> pairs(kPiece / 2 * width);
        GuardedMemory<float> scales(kPiece);
        whole().pair_values[form](rows.bytes.data() - begin * bytes, stride, n, begin, end,
                                  pairs.data(), scales.data());
        for (std::size_t j = begin; j < end; ++j) {
          const Coded want = coded({rows.decoded.data() + (j - begin) * n, n}, 4095.f);
          expect_scale(want.scale, scales[j]);
          if (std::isnan(want.scale)) continue;
          for (std::size_t c = 0; c < width; ++c) {
            ASSERT_EQ(c < n ? want.codes[c] : 0, half_of(pairs[j / 2 * width + c], j % 2))
                << form << " " << n << " " << j << " " << c;
          }
        }
      }
    }
  }
}

TEST_F(AttentionWhole, RoundsWeightsTimesScalesAndNothingThatIsNotSeen) {
  Numbers numbers(5);
  std::vector<float> weights(kPiece), scales(kPiece);
  std::vector<std::int32_t> visible(kPiece, 1);
  for (float& w : weights) w = std::fabs(numbers.normal());
  for (float& s : scales) s = std::fabs(numbers.normal()) * 1e-3f;
  for (const std::size_t hidden : {0u, 17u, 40u, 63u}) {
    visible[hidden] = 0;
    scales[hidden] = std::numeric_limits<float>::quiet_NaN();
  }
  std::vector<float> products(kPiece);
  for (std::size_t j = 0; j < kPiece; ++j) {
    products[j] = visible[j] != 0 ? weights[j] * scales[j] : 0.f;
  }
  const Coded want = coded(products, 8191.f);
  GuardedMemory<std::uint32_t> pairs(kPiece / 2);
  float scale = 0.f;
  const auto round = [&] {
    whole().round_weights({weights.data(), visible.data(), scales.data(), pairs.data(), &scale});
  };
  round();
  EXPECT_EQ(want.scale, scale);
  for (std::size_t j = 0; j < kPiece; ++j) {
    EXPECT_EQ(want.codes[j], half_of(pairs[j / 2], j % 2)) << j;
  }
  visible[17] = 1;
  round();
  EXPECT_TRUE(std::isnan(scale));
  visible[17] = 0;
  weights[3] = std::numeric_limits<float>::quiet_NaN();
  round();
  EXPECT_TRUE(std::isnan(scale));
}

/// Codes with the largest magnitudes among them, so that sums come near 2^31.
std::uint32_t pair_of(Numbers& numbers, int most) {
  const auto code = [&] {
    const auto u = static_cast<std::uint32_t>(numbers.bits() >> 40);
    if (u % 4 != 0) return static_cast<std::uint32_t>(most);
    return static_cast<std::uint32_t>(static_cast<int>(u % (2u * 4095u + 1u)) - 4095);
  };
  const std::uint32_t low = code() & 0xffffu;
  return low | code() << 16;
}

TEST_F(AttentionWhole, MultipliesExactlyAndAddsRunsInOrder) {
  for (const std::size_t rows : {1u, 2u, 3u, 7u, 8u, 21u}) {
    for (const std::size_t k : {8u, 16u, 64u, 72u, 288u}) {
      for (const std::size_t columns : {16u, 48u, 64u, 112u}) {
        const bool scaled = columns <= kPiece, accumulate = rows % 2 == 1;
        const std::size_t runs = (k + 63) / 64;
        Numbers numbers(rows * 100 + k);
        GuardedMemory<std::uint32_t> x(rows * k), panel(k * columns);
        GuardedMemory<float> row_scales(rows * runs), out(rows * columns),
            column_scales(scaled ? (runs - 1) * kPiece + columns : 1);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = pair_of(numbers, 4095);
        for (std::size_t i = 0; i < panel.size(); ++i) panel[i] = pair_of(numbers, 4095);
        for (std::size_t i = 0; i < row_scales.size(); ++i) row_scales[i] = numbers.normal();
        for (std::size_t i = 0; i < column_scales.size(); ++i) column_scales[i] = numbers.normal();
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = numbers.normal() * 1e6f;
        std::vector<float> want(rows * columns);
        for (std::size_t at = 0; at < want.size(); ++at) {
          const std::size_t r = at / columns, c = at % columns;
          float sum = accumulate ? out[at] : 0.f;
          for (std::size_t run = 0; run < runs; ++run) {
            std::int64_t exact = 0;
            for (std::size_t i = run * 64; i < std::min(k, run * 64 + 64); ++i) {
              const std::uint32_t w = panel[c / 16 * 16 * k + i * 16 + c % 16];
              for (const std::size_t h : {0u, 1u}) {
                exact += std::int64_t{half_of(w, h)} * half_of(x[r * k + i], h);
              }
            }
            const float scale =
                row_scales[r * runs + run] * (scaled ? column_scales[run * kPiece + c] : 1.f);
            sum = std::fma(static_cast<float>(exact), scale, sum);
          }
          want[at] = sum;
        }
        whole().product({.panel = panel.data(),
                         .k_stride = kPanelRows,
                         .panel_stride = kPanelRows * k,
                         .k = k,
                         .columns = columns,
                         .x = x.data(),
                         .x_stride = k,
                         .rows = rows,
                         .row_scales = row_scales.data(),
                         .row_scale_stride = runs,
                         .column_scales = scaled ? column_scales.data() : nullptr,
                         .out = out.data(),
                         .out_stride = columns,
                         .accumulate = accumulate});
        for (std::size_t at = 0; at < want.size(); ++at) {
          ASSERT_EQ(want[at], out[at]) << rows << " " << k << " " << columns << " " << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lemma::cpu
