// SPDX-License-Identifier: Apache-2.0
// Kernels of recurrent mixers and compressors, as plain loops like those of rows.hpp. Columns do
// not see each other, so blocks of 16 keep their sums in registers, and a block's column of the
// matrix stays in the cache between its two passes.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/rows.hpp"

namespace lemma::cpu {

/// Columns [first, first + N) of one step.
template <typename Simd, std::size_t N>
void delta_columns(const DeltaJob& job, std::size_t first) {
  float answer[N] = {}, read[N] = {}, correction[N];
  float* const matrix = job.matrix + first;
  for (std::size_t c = 0; c < job.key_dim; ++c) {
    float* const row = matrix + c * job.value_dim;
    const float decay = job.decay[c * job.decay_step], key = job.key[c];
    for (std::size_t l = 0; l < N; ++l) {
      const float entry = row[l] * decay;
      row[l] = entry;
      answer[l] += entry * key;
    }
  }
  for (std::size_t l = 0; l < N; ++l) {
    correction[l] = job.beta * (job.value[first + l] - answer[l]);
  }
  for (std::size_t c = 0; c < job.key_dim; ++c) {
    float* const row = matrix + c * job.value_dim;
    const float query = job.query[c], key = job.key[c];
    for (std::size_t l = 0; l < N; ++l) {
      const float entry = row[l] + key * correction[l];
      row[l] = entry;
      read[l] += entry * query;
    }
  }
  for (std::size_t l = 0; l < N; ++l) job.out[first + l] = read[l];
}

template <typename Simd>
void delta_step(const DeltaJob& job) {
  constexpr std::size_t kColumns = 16;
  std::size_t first = 0;
  for (; first + kColumns <= job.value_dim; first += kColumns) {
    delta_columns<Simd, kColumns>(job, first);
  }
  for (; first < job.value_dim; ++first) delta_columns<Simd, 1>(job, first);
}

/// Blocks of 64 channels, so that what a block needs from one token to the next stays in the cache.
template <typename Simd>
void pool(const float* const* values, const float* const* gates, std::size_t tokens,
          std::size_t width, float* out) {
  constexpr std::size_t kChannels = 64;
  for (std::size_t first = 0; first < width; first += kChannels) {
    const std::size_t n = width - first < kChannels ? width - first : kChannels;
    float top[kChannels], mass[kChannels] = {}, sum[kChannels] = {};
    for (std::size_t c = 0; c < n; ++c) top[c] = gates[0][first + c];
    for (std::size_t t = 1; t < tokens; ++t) {
      const float* const gate = gates[t] + first;
      for (std::size_t c = 0; c < n; ++c) top[c] = gate[c] > top[c] ? gate[c] : top[c];
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      const float* const gate = gates[t] + first;
      const float* const value = values[t] + first;
      for (std::size_t c = 0; c < n; ++c) {
        const float weight = exponential<Simd>(gate[c] - top[c]);
        mass[c] += weight;
        sum[c] += weight * value[c];
      }
    }
    for (std::size_t c = 0; c < n; ++c) out[first + c] = sum[c] / mass[c];
  }
}

}  // namespace lemma::cpu
