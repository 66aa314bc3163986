// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/lists.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/linear.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

/// Fills `scores` with the scores of all rows, in the order of sums, and returns the largest.
float score_rows(const GqaSpec& head, std::span<const float> query, float temperature,
                 std::span<const RowSource> sources, float largest, std::vector<float>& scores) {
  for (const RowSource& source : sources) {
    for (std::uint32_t n = 0; n < source.indices.size(); ++n) {
      const std::span<const float> k = source.key(source.indices[n]);
      float score = 0.f;
      for (std::size_t i = 0; i < query.size(); ++i) score += query[i] * temperature * k[i];
      scores.push_back(softcap(score * head.scale, head.softcap));
      largest = std::max(largest, scores.back());
    }
  }
  return largest;
}

}  // namespace

void attend_lists(const GqaSpec& head, std::span<const float> query, std::uint32_t position,
                  std::span<const RowSource> sources, const float* sink,
                  std::span<float> out) noexcept {
  LEMMA_CHECK(query.size() == head.head_dim && out.size() == head.value_dim);
  thread_local std::vector<float> weights;  // grows to the longest list that a thread has seen
  weights.clear();
  const float never = -std::numeric_limits<float>::infinity();
  const float largest = score_rows(head, query, query_temperature(head, position), sources,
                                   sink ? *sink : never, weights);
  LEMMA_CHECK(sink || !weights.empty());

  float mass = 0.f;
  for (float& weight : weights) {
    weight = std::exp(weight - largest);
    mass += weight;
  }
  if (sink) mass += std::exp(*sink - largest);

  std::fill(out.begin(), out.end(), 0.f);
  std::size_t row = 0;
  for (const RowSource& source : sources) {
    for (std::uint32_t n = 0; n < source.indices.size(); ++n) {
      const float probability = weights[row++] / mass;
      const std::span<const float> v = source.value(source.indices[n]);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += probability * v[i];
    }
  }
}

void gate_output(std::span<const float> gate, std::span<float> x) noexcept {
  LEMMA_CHECK(gate.size() == x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= sigmoid(gate[i]);
}

}  // namespace lemma::algorithm
