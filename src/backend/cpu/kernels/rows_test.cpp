// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/cpu/kernels/kernel_test_data.hpp"
#include "base/half.hpp"

namespace lemma::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class RowsTest : public KernelTest {};

TEST_P(RowsTest, RoundsEachElementToTheNearestCodeOfItsGroup) {
  for (const float scale : {1.f, 3e4f, 1e-25f}) {
    for (const std::size_t shift : {0, 4}) {
      const std::size_t n = 8 * kGroup;
      TestRows rows(1, n, shift);
      Numbers numbers(3);
      numbers.fill({rows.x.data(), n}, scale);
      table().quantize(rows.x.data(), n, rows.quantized());
      for (std::size_t g = 0; g < n / kGroup; ++g) {
        int sums[2] = {0, 0};
        int peak = 0;
        for (std::size_t i = 0; i < kGroup; ++i) {
          const int code = rows.codes[g * kGroup + i];
          sums[i / 16] += code;
          peak = std::max(peak, std::abs(code));
          // Half a step, and 127 roundings of the scale and its inverse.
          const double error =
              std::fabs(double(rows.x[g * kGroup + i]) - code * double(rows.scales[g]));
          ASSERT_LE(error, double(rows.scales[g]) * (0.5 + 127 * 0x1p-22));
        }
        EXPECT_EQ(127, peak);
        EXPECT_EQ(sums[0] + sums[1], rows.sums[3 * g]);
        EXPECT_EQ(sums[0], rows.sums[3 * g + 1]);
        EXPECT_EQ(sums[0], std::int16_t(rows.sums[3 * g + 2] & 0xffff));
        EXPECT_EQ(sums[1], rows.sums[3 * g + 2] >> 16);
        EXPECT_EQ(rows.scales[g] * float(sums[0] + sums[1]), rows.scaled_sums[g]);
      }
    }
  }
}

TEST_P(RowsTest, QuantizesZerosAndTheTiniestNumbersToZero) {
  TestRows rows(1, 2 * kGroup);
  std::fill(rows.x.begin() + kGroup, rows.x.end(), std::numeric_limits<float>::denorm_min());
  table().quantize(rows.x.data(), 2 * kGroup, rows.quantized());
  for (const float scale : rows.scales) EXPECT_EQ(0.f, scale);
  for (const std::int8_t code : rows.codes) EXPECT_EQ(0, code);
}

TEST_P(RowsTest, MarksAGroupThatHoldsNaNOrInfinity) {
  for (const float bad : {kNaN, -kNaN, kInfinity, -kInfinity}) {
    TestRows rows(1, 2 * kGroup);
    std::fill(rows.x.begin(), rows.x.end(), 1.f);
    rows.x[kGroup + 5] = bad;
    table().quantize(rows.x.data(), 2 * kGroup, rows.quantized());
    EXPECT_TRUE(std::isfinite(rows.scales[0]));
    EXPECT_TRUE(std::isnan(rows.scales[1]));
    EXPECT_TRUE(std::isnan(rows.scaled_sums[1]));
  }
}

/// A softmax under way.
struct Softmax {
  float largest = -kInfinity;
  GuardedMemory<float> weights{kPiece}, mass{16}, sums{5};
  SoftenJob job() {
    SoftenJob job;
    job.weights = weights.data();
    job.largest = &largest;
    job.mass = mass.data();
    job.sums = sums.data();
    job.width = sums.size();
    return job;
  }
  double total() { return std::accumulate(mass.data(), mass.data() + mass.size(), 0.0); }
};

TEST_P(RowsTest, SoftensProductsToTheirExponentials) {
  Softmax softmax;
  std::fill(softmax.mass.begin(), softmax.mass.end(), 0.f);
  std::fill(softmax.sums.begin(), softmax.sums.end(), 0.f);
  std::vector<float> scores(kPiece);
  for (std::size_t i = 0; i < kPiece; ++i) {
    softmax.weights[i] = -3.f * float(i);
    scores[i] = -1.5f * float(i);
  }
  softmax.weights[7] = -kInfinity;
  scores[7] = -kInfinity;
  SoftenJob job = softmax.job();
  job.scale = 0.5f;
  table().soften(job);
  EXPECT_EQ(0.f, softmax.largest);
  double want = 0;
  for (std::size_t i = 0; i < kPiece; ++i) {
    const double e = std::exp(double(scores[i]));
    want += e;
    EXPECT_NEAR(softmax.weights[i], e, 3e-7 * e + 1.2e-38) << i;
  }
  EXPECT_EQ(0.f, softmax.weights[7]);
  EXPECT_NEAR(softmax.total(), want, 1e-6 * want);
}

TEST_P(RowsTest, ScalesWhatASoftmaxHasWhenALargerScoreComes) {
  for (std::size_t at = 0; at < kPiece; ++at) {
    Softmax softmax;
    softmax.largest = -4.f;
    std::fill(softmax.weights.begin(), softmax.weights.end(), -kInfinity);
    softmax.weights[at] = -3.f;
    std::fill(softmax.mass.begin(), softmax.mass.end(), 2.f);
    std::fill(softmax.sums.begin(), softmax.sums.end(), 5.f);
    table().soften(softmax.job());
    EXPECT_EQ(-3.f, softmax.largest);
    EXPECT_EQ(1.f, softmax.weights[at]);
    EXPECT_NEAR(softmax.total(), 32 * std::exp(-1.0) + 1, 1e-5);
    for (const float x : softmax.sums) EXPECT_NEAR(x, 5 * std::exp(-1.0), 1e-6);
  }
}

TEST_P(RowsTest, AScoreThatIsNotLargerLeavesTheSumsAsTheyAre) {
  Softmax softmax;
  softmax.largest = 1.f;
  std::fill(softmax.weights.begin(), softmax.weights.end(), 1.f);
  std::fill(softmax.mass.begin(), softmax.mass.end(), 0.f);
  std::fill(softmax.sums.begin(), softmax.sums.end(), 0.1f);
  table().soften(softmax.job());
  for (const float x : softmax.sums) EXPECT_EQ(0.1f, x);
  for (const float x : softmax.mass) EXPECT_EQ(4.f, x);
}

TEST_P(RowsTest, WhatIsNotSeenWeighsNothingEvenIfItIsNoNumber) {
  Softmax softmax;
  std::vector<std::int32_t> visible(kPiece, 0);
  std::fill(softmax.weights.begin(), softmax.weights.end(), std::nanf(""));
  for (const std::size_t j : {3u, 40u}) {
    visible[j] = 1;
    softmax.weights[j] = float(j);
  }
  std::fill(softmax.mass.begin(), softmax.mass.end(), 0.f);
  std::fill(softmax.sums.begin(), softmax.sums.end(), 0.f);
  SoftenJob job = softmax.job();
  job.visible = visible.data();
  job.slope = -1.f;  // of scores 3 - (-47) and 40 - (-10) the first and the second are alike
  job.distance = -50.f;
  table().soften(job);
  for (std::size_t j = 0; j < kPiece; ++j) {
    EXPECT_EQ(visible[j] != 0 ? 1.f : 0.f, softmax.weights[j]) << j;
  }
  EXPECT_EQ(50.f, softmax.largest);
}

TEST_P(RowsTest, TransposesSixteenRows) {
  for (const std::size_t width : {16u, 48u, 128u}) {
    const std::size_t stride = width + 16;
    GuardedMemory<float> rows(16 * stride - 16), out(16 * width);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = float(i);
    table().transpose(rows.data(), stride, width, out.data());
    for (std::size_t r = 0; r < 16; ++r) {
      for (std::size_t i = 0; i < width; ++i) ASSERT_EQ(rows[r * stride + i], out[i * 16 + r]);
    }
  }
}

TEST_P(RowsTest, CapsSoftlyWithoutOverflowOrCancellation) {
  const float in[] = {0.f,    1e-4f,  0.5f, 1.f,   31.f,  32.f, 49.f,   100.f,  1000.f,
                      4400.f, 5000.f, 1e4f, -1e4f, 1e30f, -1.f, -31.2f, -100.f, kInfinity};
  constexpr std::size_t kCount = std::size(in);
  GuardedMemory<float> x(kCount);
  std::copy(std::begin(in), std::end(in), x.begin());
  table().softcap(x.data(), kCount, 50.f);
  for (std::size_t i = 0; i < kCount; ++i) {
    const double want = 50.0 * std::tanh(double(in[i]) / 50.0);
    EXPECT_NEAR(x[i], want, 1e-6 * std::fabs(want)) << in[i];
  }
}

TEST_P(RowsTest, SumsARowOfAnyLengthInF64) {
  for (const std::size_t n : {1, 3, 15, 16, 17, 31, 100}) {
    GuardedMemory<float> x(n);
    Numbers numbers(n);
    numbers.fill({x.data(), n}, 1e20f);
    double sum = 0, squares = 0, magnitude = 0;
    for (const float v : x) sum += v, magnitude += std::fabs(v), squares += (v - 0.5) * (v - 0.5);
    EXPECT_NEAR(table().sum(x.data(), n), sum, magnitude * 1e-14);
    EXPECT_NEAR(table().sum_of_squares(x.data(), n, 0.5), squares, squares * 1e-14);
  }
}

TEST_P(RowsTest, NormalizesWithOptionalWeightAndBias) {
  for (const std::size_t n : {1, 7, 16, 33}) {
    GuardedMemory<float> x(n), weight(n), bias(n), out(n);
    Numbers numbers(n);
    for (auto* v : {&x, &weight, &bias}) numbers.fill({v->data(), n});
    table().normalize(x.data(), n, 0.25f, 3.f, weight.data(), bias.data(), out.data());
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ((x[i] - 0.25f) / 3.f * weight[i] + bias[i], out[i]);
    }
    table().normalize(x.data(), n, 0.f, 3.f, nullptr, nullptr, x.data());  // in place
  }
}

TEST_P(RowsTest, ActivatesWithinTwoUnitsOfTheDefinition) {
  const std::size_t n = 4003;
  GuardedMemory<float> g(n), up(n), silu(n), gelu(n), gated(n);
  Numbers numbers(1);
  for (std::size_t i = 0; i < n; ++i) g[i] = numbers.uniform() * (i % 3 == 0 ? 100.f : 6.f);
  g[0] = 3e4f, g[1] = -3e4f, g[2] = 0.f, g[3] = -0.f, g[4] = 1e-30f;
  numbers.fill({up.data(), n});
  table().silu(g.data(), up.data(), n, silu.data());
  table().gelu_tanh(g.data(), up.data(), n, gelu.data());
  table().gate(up.data(), g.data(), n, gated.data());
  for (std::size_t i = 0; i < n; ++i) {
    const double x = g[i], logistic = 1 / (1 + std::exp(-x));
    const double cube = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    const double want_gelu = x / (1 + std::exp(-2 * cube)) * up[i];
    EXPECT_NEAR(silu[i], x * logistic * up[i], 1e-6 * std::fabs(x * logistic * up[i]) + 1e-32) << x;
    EXPECT_NEAR(gated[i], logistic * up[i], 1e-6 * std::fabs(logistic * up[i]) + 1e-36) << x;
    // exp's argument reaches 2 cube = 80 with an error of a few 2^-24.
    EXPECT_NEAR(gelu[i], want_gelu, 1e-5 * std::fabs(want_gelu) + 1e-32) << x;
  }
}

TEST_P(RowsTest, RotatesBothLayoutsAndBack) {
  for (const bool split : {true, false}) {
    const std::size_t pairs = 13;
    GuardedMemory<float> x(2 * pairs), out(2 * pairs), cos(pairs), sin(pairs);
    Numbers numbers(5);
    numbers.fill({x.data(), x.size()});
    for (std::size_t i = 0; i < pairs; ++i)
      cos[i] = std::cos(float(i)), sin[i] = std::sin(float(i));
    RotateJob job{x.data(), out.data(),      cos.data(),         sin.data(),
                  pairs,    split ? 1u : 2u, split ? pairs : 1u, false};
    table().rotate(job);
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::size_t a = split ? i : 2 * i, b = split ? i + pairs : 2 * i + 1;
      EXPECT_EQ(x[a] * cos[i] - x[b] * sin[i], out[a]);
      EXPECT_EQ(x[b] * cos[i] + x[a] * sin[i], out[b]);
    }
    job.x = out.data();
    job.inverse = true;
    table().rotate(job);
    for (std::size_t i = 0; i < 2 * pairs; ++i) EXPECT_NEAR(x[i], out[i], 1e-6);
  }
}

TEST_P(RowsTest, AddsTwoRows) {
  GuardedMemory<float> a(19), b(19), out(19);
  Numbers numbers(6);
  for (auto* v : {&a, &b}) numbers.fill({v->data(), 19});
  table().add(a.data(), b.data(), 0.5f, 2.f, 19, out.data());
  for (std::size_t i = 0; i < 19; ++i) EXPECT_EQ((a[i] + b[i] * 0.5f) * 2.f, out[i]);
}

TEST_P(RowsTest, MultipliesVectorsOfAnyLength) {
  for (const std::size_t n : {1, 15, 16, 17, 100}) {
    GuardedMemory<float> a(n), b(n);
    Numbers numbers(n);
    for (auto* v : {&a, &b}) numbers.fill({v->data(), n});
    double want = 0.0;
    for (std::size_t i = 0; i < n; ++i) want += double(a[i]) * double(b[i]);
    EXPECT_NEAR(want, table().dot(a.data(), b.data(), n), 1e-5);
  }
}

TEST_P(RowsTest, LimitsBothSidesOfAnActivation) {
  const std::size_t n = 1001;
  GuardedMemory<float> g(n), up(n), capped(n), after(n), oai(n), situ(n), linear(n);
  Numbers numbers(2);
  for (std::size_t i = 0; i < n; ++i)
    g[i] = numbers.uniform() * 12.f, up[i] = numbers.uniform() * 12.f;
  table().silu_limited(g.data(), up.data(), n, 5.f, false, capped.data());
  table().silu_limited(g.data(), up.data(), n, 5.f, true, after.data());
  table().swiglu_oai(g.data(), up.data(), n, 7.f, 1.702f, oai.data());
  table().situ(g.data(), up.data(), n, 4.f, 0.f, linear.data());
  table().situ(g.data(), up.data(), n, 4.f, 3.f, situ.data());
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (std::size_t i = 0; i < n; ++i) {
    const double x = g[i], u = std::clamp(double(up[i]), -5.0, 5.0), x5 = std::min(x, 5.0);
    const auto near = [&](double want, float got) {
      EXPECT_NEAR(want, got, 2e-6 * std::fabs(want) + 1e-30) << x << " " << up[i];
    };
    near(x5 * logistic(x5) * u, capped[i]);
    near(std::min(x * logistic(x), 5.0) * u, after[i]);
    const double x7 = std::min(x, 7.0), u7 = std::clamp(double(up[i]), -7.0, 7.0);
    EXPECT_NEAR(x7 * logistic(double(1.702f) * x7) * (u7 + 1), oai[i],
                1e-6 * std::fabs(x7) * (std::fabs(u7) + 1));
    const double bent = 4 * std::tanh(x / 4) * logistic(x);
    near(bent * up[i], linear[i]);
    near(bent * 3 * std::tanh(double(up[i]) / 3), situ[i]);
  }
}

TEST_P(RowsTest, LetsNothingThatIsNotFiniteVanishAtALimit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float out;
  const float one = 1.f;
  for (const bool after : {false, true}) {
    table().silu_limited(&nan, &one, 1, 5.f, after, &out);
    EXPECT_TRUE(std::isnan(out));
    table().silu_limited(&one, &nan, 1, 5.f, after, &out);
    EXPECT_TRUE(std::isnan(out));
  }
  table().swiglu_oai(&one, &nan, 1, 7.f, 1.7f, &out);
  EXPECT_TRUE(std::isnan(out));
  table().situ(&nan, &one, 1, 4.f, 3.f, &out);
  EXPECT_TRUE(std::isnan(out));
}

TEST_P(RowsTest, DecodesEvery16BitPatternLikeTheDefinition) {
  GuardedMemory<std::uint16_t> bits(65536);
  GuardedMemory<float> f16(65536), bf16(65536);
  for (std::size_t i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
  const auto* bytes = reinterpret_cast<const std::byte*>(bits.data());
  table().decode_f16(bytes, 65536, f16.data());
  table().decode_bf16(bytes, 65536, bf16.data());
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(base::f16_to_f32(half)),
              std::bit_cast<std::uint32_t>(f16[i]))
        << i;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(base::bf16_to_f32(half)),
              std::bit_cast<std::uint32_t>(bf16[i]))
        << i;
  }
}

TEST_P(RowsTest, DecodesTailsWithoutReadingBeyondThem) {
  for (std::size_t n = 1; n < 40; ++n) {
    GuardedMemory<std::uint16_t> bits(n);
    GuardedMemory<float> out(n);
    for (std::size_t i = 0; i < n; ++i) bits[i] = base::f32_to_f16(float(i));
    table().decode_f16(reinterpret_cast<const std::byte*>(bits.data()), n, out.data());
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(float(i), out[i]);
  }
}

TEST_P(RowsTest, DecodesQ8GroupsOfAnySize) {
  for (const std::size_t group : {1, 4, 20, 32}) {
    const std::size_t groups = 3, n = groups * group;
    GuardedMemory<std::int8_t> codes(n);
    GuardedMemory<std::uint16_t> scales(groups);
    GuardedMemory<float> out(n);
    for (std::size_t i = 0; i < n; ++i)
      codes[i] = static_cast<std::int8_t>(int(i * 37 % 255) - 127);
    for (std::size_t g = 0; g < groups; ++g) scales[g] = base::f32_to_f16(0.5f + float(g));
    table().decode_q8(reinterpret_cast<const std::byte*>(codes.data()),
                      reinterpret_cast<const std::byte*>(scales.data()), group, n, out.data());
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(float(codes[i]) * (0.5f + float(i / group)), out[i]);
    }
  }
}

TEST_P(RowsTest, EqualsTheScalarKernelsToTheBit) {
  // The row kernels fuse nothing and sum in fixed lanes, so every instruction set must agree.
  const std::size_t n = 1003;
  std::vector<float> g(n), up(n), a(n), b(n);
  Numbers numbers(8);
  numbers.fill(g, 8.f);
  numbers.fill(up);
  const KernelTable& scalar = kScalarKernels;
  const auto same = [&](auto&& call) {
    call(table(), a.data());
    call(scalar, b.data());
    EXPECT_EQ(0, std::memcmp(a.data(), b.data(), n * sizeof(float)));
  };
  same([&](const KernelTable& k, float* out) { k.silu(g.data(), up.data(), n, out); });
  same([&](const KernelTable& k, float* out) { k.gelu_tanh(g.data(), up.data(), n, out); });
  same([&](const KernelTable& k, float* out) { k.gate(g.data(), up.data(), n, out); });
  same([&](const KernelTable& k, float* out) {
    k.normalize(g.data(), n, 1.f, 3.f, up.data(), g.data(), out);
  });
  same([&](const KernelTable& k, float* out) { k.add(g.data(), up.data(), 2.f, 3.f, n, out); });
  same([&](const KernelTable& k, float* out) {
    k.silu_limited(g.data(), up.data(), n, 1.f, false, out);
  });
  same([&](const KernelTable& k, float* out) {
    k.swiglu_oai(g.data(), up.data(), n, 1.f, 1.7f, out);
  });
  same([&](const KernelTable& k, float* out) { k.situ(g.data(), up.data(), n, 4.f, 3.f, out); });
  EXPECT_EQ(scalar.dot(g.data(), up.data(), n), table().dot(g.data(), up.data(), n));
  EXPECT_EQ(scalar.sum(g.data(), n), table().sum(g.data(), n));
  EXPECT_EQ(scalar.sum_of_squares(g.data(), n, 0.1), table().sum_of_squares(g.data(), n, 0.1));
}

LEMMA_FOR_EACH_ISA(RowsTest);

}  // namespace
}  // namespace lemma::cpu
