// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/kernels/kernel_test_data.hpp"

namespace lemma::cpu {
namespace {

class RecurrentTest : public KernelTest {};

/// Random inputs of one step behind guard pages.
struct Step {
  Step(std::size_t keys, std::size_t values, std::size_t decays)
      : matrix(keys * values), decay(decays), query(keys), key(keys), value(values), out(values) {
    Numbers numbers(keys * 100 + values);
    for (auto* v : {&matrix, &query, &key, &value}) numbers.fill({v->data(), v->size()});
    for (std::size_t i = 0; i < decays; ++i) decay[i] = 0.5f + 0.4f * numbers.uniform();
    job.matrix = matrix.data();
    job.key_dim = keys;
    job.value_dim = values;
    job.decay = decay.data();
    job.decay_step = decays > 1 ? 1 : 0;
    job.query = query.data();
    job.key = key.data();
    job.value = value.data();
    job.beta = 0.75f;
    job.out = out.data();
  }
  GuardedMemory<float> matrix, decay, query, key, value, out;
  DeltaJob job;
};

TEST_P(RecurrentTest, ForgetsCorrectsAndReadsEachColumnOnItsOwn) {
  for (const std::size_t values : {1, 5, 16, 21, 48}) {
    for (const bool each : {false, true}) {
      const std::size_t keys = 7;
      Step step(keys, values, each ? keys : 1);
      std::vector<float> want_matrix(step.matrix.data(), step.matrix.data() + keys * values);
      std::vector<float> want(values);
      for (std::size_t v = 0; v < values; ++v) {
        float answer = 0.f;
        for (std::size_t c = 0; c < keys; ++c) {
          want_matrix[c * values + v] *= step.decay[each ? c : 0];
          answer += want_matrix[c * values + v] * step.key[c];
        }
        const float correction = 0.75f * (step.value[v] - answer);
        for (std::size_t c = 0; c < keys; ++c) {
          want_matrix[c * values + v] += step.key[c] * correction;
          want[v] += want_matrix[c * values + v] * step.query[c];
        }
      }
      table().delta_step(step.job);
      EXPECT_EQ(0, std::memcmp(want_matrix.data(), step.matrix.data(),
                               want_matrix.size() * sizeof(float)));
      EXPECT_EQ(0, std::memcmp(want.data(), step.out.data(), values * sizeof(float)));
    }
  }
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
