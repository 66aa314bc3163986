// SPDX-License-Identifier: Apache-2.0
#include "quantize/gptq.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "weights/formats/codes.hpp"

namespace lemma::quantize {
namespace {

using weights::Format;

constexpr std::size_t kCols = 256, kRows = 24, kSamples = 600;

/// Numbers of a bell, the same each time.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  float operator()() {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      sum += float(state_ >> 40) * 0x1p-24f - 0.5f;
    }
    return sum;
  }

 private:
  std::uint64_t state_;
};

/// Of inputs in which each column shares a part with its neighbours, and some are large.
std::vector<float> hessian_of_correlated_inputs() {
  Noise noise(1);
  std::vector<float> hessian(kCols * kCols);
  std::vector<float> x(kCols);
  for (std::size_t s = 0; s < kSamples; ++s) {
    float shared = 0;
    for (std::size_t c = 0; c < kCols; ++c) {
      shared = 0.9f * shared + 0.5f * noise();
      x[c] = (shared + 0.3f * noise()) * (c % 37 == 0 ? 8.f : 1.f);
    }
    for (std::size_t i = 0; i < kCols; ++i)
      for (std::size_t j = 0; j <= i; ++j) hessian[i * kCols + j] += x[i] * x[j];
  }
  return hessian;
}

std::vector<float> weights_of(std::uint64_t seed) {
  Noise noise(seed);
  std::vector<float> values(kRows * kCols);
  for (float& value : values) value = noise();
  return values;
}

std::vector<float> decoded(Format format, const std::vector<std::byte>& bytes) {
  std::vector<float> values(kRows * kCols);
  weights::traits(format).dequantize(bytes.data(), values);
  return values;
}

std::vector<std::byte> by_gptq(Format format, const std::vector<float>& values,
                               const std::vector<float>& hessian) {
  base::ThreadPool pool(1);
  const Gptq gptq(hessian, kCols, format, 0.01, pool);
  const std::size_t row_bytes = weights::row_bytes(format, kCols);
  std::vector<std::byte> out(kRows * row_bytes);
  for (std::size_t r = 0; r < kRows; r += Gptq::kRowsAtOnce) {
    const std::size_t count = std::min(Gptq::kRowsAtOnce, kRows - r);
    gptq.encode(std::span(values).subspan(r * kCols, count * kCols), count,
                out.data() + r * row_bytes);
  }
  return out;
}

std::vector<double> errors(const std::vector<float>& values, const std::vector<float>& decoded,
                           const std::vector<float>& hessian) {
  std::vector<double> result(kRows);
  std::vector<float> error(kCols);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t c = 0; c < kCols; ++c)
      error[c] = decoded[r * kCols + c] - values[r * kCols + c];
    result[r] = output_error(error, hessian);
  }
  return result;
}

TEST(Gptq, LeavesSmallerErrorsInTheOutputsThanRounding) {
  const std::vector<float> hessian = hessian_of_correlated_inputs(), values = weights_of(2);
  for (const Format format : weights::kFormats) {
    if (!weights::formats::has_codes(format)) continue;
    const weights::FormatTraits& t = weights::traits(format);
    std::vector<std::byte> plain(kRows * weights::row_bytes(format, kCols));
    t.quantize(values, plain.data());
    const auto rounded = errors(values, decoded(format, plain), hessian);
    const auto chosen = errors(values, decoded(format, by_gptq(format, values, hessian)), hessian);
    double sum_rounded = 0, sum_chosen = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      EXPECT_LT(chosen[r], rounded[r]) << t.name << " row " << r;
      sum_rounded += rounded[r];
      sum_chosen += chosen[r];
    }
    EXPECT_LT(sum_chosen, 0.5 * sum_rounded) << t.name;
  }
}

TEST(Gptq, OfInputsThatHaveNothingInCommonIsRounding) {
  std::vector<float> hessian(kCols * kCols);
  for (std::size_t i = 0; i < kCols; ++i) hessian[i * kCols + i] = 3.f;
  const std::vector<float> values = weights_of(3), alike(values.size(), 1.f);
  for (const Format format : {Format::kQ4_0, Format::kQ8_0, Format::kQ6_K}) {
    std::vector<std::byte> plain(kRows * weights::row_bytes(format, kCols));
    weights::traits(format).quantize(values, plain.data(), alike.data());
    EXPECT_EQ(decoded(format, by_gptq(format, values, hessian)), decoded(format, plain))
        << weights::traits(format).name;
  }
}

TEST(Gptq, GivesTheLastColumnTheCodeThatServesTheOthersBest) {
  // Nothing is left to make good what the last column does, so its code has to be the best one for
  // the errors that the others made: rounding it by itself would not do.
  constexpr std::size_t kBlock = 32, kLast = kBlock - 1;
  std::vector<float> hessian(kBlock * kBlock);
  for (std::size_t i = 0; i < kBlock; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      hessian[i * kBlock + j] = i == j ? 100.f - float(i) : 60.f * std::pow(0.9f, float(i - j));
  base::ThreadPool pool(1);
  const Gptq gptq(hessian, kBlock, Format::kQ4_0, 1e-6, pool);
  std::size_t moved = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    std::vector<float> values = weights_of(seed), error(kBlock);
    values.resize(kBlock);
    std::vector<std::byte> out(weights::row_bytes(Format::kQ4_0, kBlock));
    gptq.encode(values, 1, out.data());
    weights::formats::Grid grid;
    read_grid(Format::kQ4_0, out.data(), grid);
    weights::traits(Format::kQ4_0).dequantize(out.data(), error);
    const float chosen = error[kLast], step = grid.steps[kLast];
    moved += std::abs(chosen - values[kLast]) > std::abs(step) * 0.501f;
    for (std::size_t c = 0; c < kBlock; ++c) error[c] -= values[c];
    const double least = output_error(error, hessian);
    for (int code = grid.low; code <= grid.high; ++code) {
      error[kLast] = step * float(code) - values[kLast];
      EXPECT_GE(output_error(error, hessian), least * (1 - 1e-5)) << seed << " " << code;
    }
  }
  EXPECT_GT(moved, 0u);
}

TEST(Gptq, ThreadsDoNotShow) {
  const std::vector<float> hessian = hessian_of_correlated_inputs(), values = weights_of(4);
  std::vector<std::vector<std::byte>> made;
  for (const int threads : {1, 3}) {
    base::ThreadPool pool(threads);
    const Gptq gptq(hessian, kCols, Format::kQ4_K, 0.01, pool);
    made.emplace_back(Gptq::kRowsAtOnce * weights::row_bytes(Format::kQ4_K, kCols));
    gptq.encode(std::span(values).first(Gptq::kRowsAtOnce * kCols), Gptq::kRowsAtOnce,
                made.back().data());
  }
  EXPECT_EQ(made[0], made[1]);
}

TEST(Gptq, ColumnsThatMeetNothingDoNoHarm) {
  std::vector<float> hessian = hessian_of_correlated_inputs();
  for (std::size_t i = 0; i < kCols; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      if (i % 5 == 0 || j % 5 == 0) hessian[i * kCols + j] = 0.f;
  const std::vector<float> values = weights_of(5);
  for (const float value : decoded(Format::kQ4_0, by_gptq(Format::kQ4_0, values, hessian)))
    ASSERT_TRUE(std::isfinite(value) && std::abs(value) < 8.f);
  const std::vector<float> none(kCols * kCols);
  for (const float value : decoded(Format::kQ4_0, by_gptq(Format::kQ4_0, values, none)))
    ASSERT_TRUE(std::isfinite(value) && std::abs(value) < 8.f);
}

TEST(OutputError, IsTheQuadraticForm) {
  const std::vector<float> hessian = {2.f, 99.f, 3.f, 5.f};  // what is above the diagonal is unread
  EXPECT_DOUBLE_EQ(output_error(std::vector<float>{1.f, -2.f}, hessian), 2 - 12 + 20);
}

}  // namespace
}  // namespace lemma::quantize
