// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/indexer.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithm/attention/require.hpp"
#include "algorithm/topk.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "indexer";

}  // namespace

void IndexerSpec::validate() const {
  require(heads > 0, kSpec, "heads", "at least 1", heads);
  require(is_row(heads, dim), kSpec, "dim", "at least 1 and a row below 2^32 elements", dim);
  require(rope_dim % 2 == 0 && rope_dim <= dim, kSpec, "rope_dim", "an even number up to dim",
          rope_dim);
  require(top_k > 0, kSpec, "top_k", "at least 1", top_k);
}

float index_score(const IndexerSpec& spec, std::span<const float> query,
                  std::span<const float> weights, std::span<const float> key) noexcept {
  LEMMA_CHECK(query.size() == std::size_t(spec.heads) * spec.dim);
  LEMMA_CHECK(weights.size() == spec.heads && key.size() == spec.dim);
  const float head_scale = 1.f / std::sqrt(float(spec.heads));
  const float dot_scale = 1.f / std::sqrt(float(spec.dim));
  float score = 0.f;
  for (std::size_t h = 0; h < spec.heads; ++h) {
    const std::span<const float> q = query.subspan(h * spec.dim, spec.dim);
    float dot = 0.f;
    for (std::size_t i = 0; i < q.size(); ++i) dot += q[i] * key[i];
    dot *= dot_scale;
    if (dot < 0.f) dot = 0.f;  // and not std::max, which would swallow a NaN
    score += weights[h] * head_scale * dot;
  }
  return score;
}

std::optional<std::size_t> select_rows(const IndexerSpec& spec, std::span<const float> query,
                                       std::span<const float> weights, std::uint32_t candidates,
                                       std::uint32_t k, const RowReader& key,
                                       std::span<float> scores,
                                       std::span<std::uint32_t> chosen) noexcept {
  LEMMA_CHECK(chosen.size() >= std::min(k, candidates));
  if (candidates <= k) {
    std::iota(chosen.begin(), chosen.begin() + candidates, 0u);
    return candidates;
  }
  LEMMA_CHECK(scores.size() >= candidates);
  scores = scores.first(candidates);
  for (std::uint32_t j = 0; j < candidates; ++j) {
    scores[j] = index_score(spec, query, weights, key(j));
    if (!std::isfinite(scores[j])) return std::nullopt;
  }
  return topk(scores, k, TopkOrder::kAscending, chosen);
}

}  // namespace lemma::algorithm
