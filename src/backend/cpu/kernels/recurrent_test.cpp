// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/kernels/kernel_test_data.hpp"

namespace lemma::cpu {
namespace {

class RecurrentTest : public KernelTest {};

/// Random inputs of some tokens behind guard pages: rows of [query][key][value][decays][beta].
struct Tokens {
  Tokens(std::size_t rows, std::size_t keys, std::size_t values, bool each)
      : stride(2 * keys + values + (each ? keys : 1) + 1),
        matrix(keys * values),
        input(rows * stride),
        out(rows * values),
        scratch(rows * (2 * keys + 1)) {
    Numbers numbers(keys * 100 + values);
    numbers.fill({matrix.data(), matrix.size()});
    numbers.fill({input.data(), input.size()}, 0.5f);
    for (std::size_t row = 0; row < rows; ++row) {
      float* const decays = input.data() + row * stride + 2 * keys + values;
      for (std::size_t i = 0; i < (each ? keys : 1); ++i)
        decays[i] = 0.6f + 0.4f * numbers.uniform();
      decays[each ? keys : 1] = 0.75f;
    }
    job.matrix = matrix.data();
    job.key_dim = keys;
    job.value_dim = values;
    job.rows = rows;
    job.decay_step = each ? 1 : 0;
    job.stride = job.decay_stride = job.beta_stride = stride;
    job.out_stride = values;
    job.scratch = scratch.data();
    begin_at(0);
  }
  void begin_at(std::size_t row) {
    job.query = input.data() + row * stride;
    job.key = job.query + job.key_dim;
    job.value = job.key + job.key_dim;
    job.decay = job.value + job.value_dim;
    job.beta = job.decay + (job.decay_step ? job.key_dim : 1);
    job.out = out.data() + row * job.value_dim;
  }
  std::size_t stride;
  GuardedMemory<float> matrix, input, out, scratch;
  DeltaJob job;
};

/// The definition, in f64: forgets, corrects, reads.
void take(const DeltaJob& job, std::vector<double>& matrix, std::vector<double>& out) {
  const std::size_t n = job.key_dim, width = job.value_dim;
  for (std::size_t row = 0; row < job.rows; ++row) {
    const float *query = job.query + row * job.stride, *key = job.key + row * job.stride;
    const float *value = job.value + row * job.stride, *decay = job.decay + row * job.decay_stride;
    for (std::size_t v = 0; v < width; ++v) {
      double answer = 0, read = 0;
      for (std::size_t c = 0; c < n; ++c) {
        matrix[c * width + v] *= double(decay[c * job.decay_step]);
        answer += matrix[c * width + v] * double(key[c]);
      }
      const double correction =
          double(job.beta[row * job.beta_stride]) * (double(value[v]) - answer);
      for (std::size_t c = 0; c < n; ++c) {
        matrix[c * width + v] += double(key[c]) * correction;
        read += matrix[c * width + v] * double(query[c]);
      }
      out.push_back(read);
    }
  }
}

constexpr std::size_t kValueWidths[] = {1, 5, 16, 21, 48, 64, 150, 192};

TEST_P(RecurrentTest, ForgetsCorrectsAndReadsTokenAfterToken) {
  for (const std::size_t values : kValueWidths) {
    for (const bool each : {false, true}) {
      Tokens tokens(5, 7, values, each);
      std::vector<double> matrix(tokens.matrix.data(), tokens.matrix.data() + 7 * values), out;
      take(tokens.job, matrix, out);
      table().delta_rows(tokens.job);
      // Some 20 sums of a token have terms of about 1, and five tokens follow each other.
      for (std::size_t i = 0; i < matrix.size(); ++i)
        ASSERT_NEAR(matrix[i], tokens.matrix.data()[i], 5e-6) << values << " " << each;
      for (std::size_t i = 0; i < out.size(); ++i)
        ASSERT_NEAR(out[i], tokens.out.data()[i], 5e-6) << values << " " << each;
    }
  }
}

TEST_P(RecurrentTest, HasTheSameBitsWithManyTokensAtOnceAndOneByOne) {
  for (const std::size_t values : kValueWidths) {
    for (const bool each : {false, true}) {
      Tokens together(6, 9, values, each), apart(6, 9, values, each);
      table().delta_rows(together.job);
      std::size_t row = 0;
      for (const std::size_t rows : {1, 2, 3}) {
        apart.begin_at(row);
        apart.job.rows = rows;
        table().delta_rows(apart.job);
        row += rows;
      }
      ASSERT_EQ(0, std::memcmp(together.matrix.data(), apart.matrix.data(),
                               together.matrix.size() * sizeof(float)));
      ASSERT_EQ(0, std::memcmp(together.out.data(), apart.out.data(),
                               together.out.size() * sizeof(float)));
    }
  }
}

TEST_P(RecurrentTest, ConvolvesEachChannelOverTheRowsThatThereAre) {
  const std::size_t taps = 4;
  for (const std::size_t channels : {1, 15, 64, 300}) {
    GuardedMemory<float> x(taps * channels), weights(taps * channels), out(channels);
    Numbers numbers(channels);
    numbers.fill({x.data(), x.size()});
    numbers.fill({weights.data(), weights.size()});
    for (const std::size_t absent : {0, 2}) {
      const float* rows[taps] = {};
      for (std::size_t t = absent; t < taps; ++t) rows[t] = x.data() + t * channels;
      ConvolveJob job;
      job.rows = rows;
      job.weights = weights.data();
      job.taps = taps;
      job.weight_stride = job.channels = channels;
      job.out = out.data();
      table().convolve(job);
      for (std::size_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (std::size_t t = absent; t < taps; ++t) {
          sum += double(weights.data()[t * channels + c]) * double(rows[t][c]);
        }
        ASSERT_NEAR(sum / (1 + std::exp(-sum)), out.data()[c], 3e-6);
      }
    }
  }
}

// A factor e^g is exact to a few units in the last place of g (at most 87, or the factor is 0).
TEST_P(RecurrentTest, DecaysByTheSoftplusOrBelowABound) {
  std::vector<float> raw;
  for (float x = -100.f; x <= 100.f; x += 0.37f) raw.push_back(x);
  for (const float x : {0.f, -0.f, 1e-8f, -1e-8f, 1e30f, -1e30f}) raw.push_back(x);
  std::vector<float> bias(raw.size(), 0.25f), rate(raw.size()), out(raw.size());
  for (std::size_t i = 0; i < raw.size(); ++i) rate[i] = 0.01f + 0.3f * float(i % 9);
  for (const float bound : {0.f, -5.f}) {
    table().decay(raw.data(), bias.data(), rate.data(), bound, raw.size(), out.data());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      const double x = double(raw[i] + bias[i]), r = double(rate[i]);
      const double softplus = (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x)));
      const double g = bound < 0.f ? double(bound) / (1 + std::exp(-r * x)) : -r * softplus;
      ASSERT_NEAR(std::exp(g), out[i], 4e-7 * std::exp(g) * (1 - g) + 1e-37) << x << " " << bound;
    }
  }
  float nothing = std::nanf("");
  table().decay(&nothing, bias.data(), rate.data(), 0.f, 1, out.data());
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST_P(RecurrentTest, PoolsEachChannelByItsOwnSoftmax) {
  const std::size_t tokens = 5;
  for (const std::size_t width : {1, 15, 64, 100}) {
    GuardedMemory<float> value(tokens * width), gate(tokens * width), out(width);
    Numbers numbers(width);
    numbers.fill({value.data(), value.size()});
    numbers.fill({gate.data(), gate.size()}, 5.f);
    const float *values[tokens], *gates[tokens];
    for (std::size_t t = 0; t < tokens; ++t) {
      values[t] = value.data() + t * width;
      gates[t] = gate.data() + t * width;
    }
    table().pool(values, gates, tokens, width, out.data());
    for (std::size_t c = 0; c < width; ++c) {
      double mass = 0.0, sum = 0.0;
      for (std::size_t t = 0; t < tokens; ++t) {
        const double weight = std::exp(double(gates[t][c]));
        mass += weight;
        sum += weight * double(values[t][c]);
      }
      EXPECT_NEAR(sum / mass, out[c], 3e-6);
    }
  }
}

LEMMA_FOR_EACH_ISA(RecurrentTest);

}  // namespace
}  // namespace lemma::cpu
