// SPDX-License-Identifier: Apache-2.0
#include "runtime/log_probabilities.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lemma::runtime {

RowProbabilities log_probabilities(std::span<const float> logits, TokenId chosen, std::size_t top) {
  const double largest = double(*std::max_element(logits.begin(), logits.end()));
  double mass = 0.0;
  for (const float logit : logits) mass += std::exp(double(logit) - largest);
  const double log_mass = largest + std::log(mass);
  const auto value = [&](TokenId id) { return double(logits[std::size_t(id)]) - log_mass; };

  RowProbabilities row;
  row.chosen = value(chosen);
  if (top == 0) return row;
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::ptrdiff_t(std::min(top, ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](TokenId a, TokenId b) {
    const float x = logits[std::size_t(a)], y = logits[std::size_t(b)];
    return x != y ? x > y : a < b;
  });
  for (auto id = ids.begin(); id != end; ++id) row.top.push_back({*id, value(*id)});
  return row;
}

}  // namespace lemma::runtime
