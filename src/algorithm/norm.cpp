// SPDX-License-Identifier: Apache-2.0
#include "algorithm/norm.hpp"

#include <cmath>
#include <cstddef>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::algorithm {
namespace {

double sum_of_squares(std::span<const float> x, double centre) noexcept {
  double sum = 0.0;
  for (const float value : x) {
    const double d = double(value) - centre;
    sum += d * d;
  }
  return sum;
}

/// out = (x - centre) / root, a zero root (eps 0 and a constant vector) giving zeros. Dividing by
/// the root keeps every finite input finite, where its reciprocal could overflow.
void divide(std::span<const float> x, float centre, float root, std::span<float> out) noexcept {
  if (root == 0.f) {
    for (float& value : out) value = 0.f;
    return;
  }
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = (x[i] - centre) / root;
}

}  // namespace

void NormSpec::validate() const {
  if (!(std::isfinite(eps) && eps >= 0.f)) {
    base::raise(ErrorKind::kUnsupported, "norm eps: expected a finite number >= 0, found {}", eps);
  }
}

void normalize(const NormSpec& spec, std::span<const float> x, std::span<const float> weight,
               std::span<const float> bias, std::span<float> out) noexcept {
  LEMMA_CHECK(!x.empty() && out.size() == x.size());
  LEMMA_CHECK(weight.empty() || weight.size() == x.size());
  LEMMA_CHECK(bias.empty() || bias.size() == x.size());
  const double n = double(x.size());
  double centre = 0.0;
  if (spec.kind == NormKind::kLayer) {
    for (const float value : x) centre += double(value);
    centre /= n;
  }
  const double mean_square = sum_of_squares(x, centre) / n;
  divide(x, float(centre), float(std::sqrt(mean_square + double(spec.eps))), out);
  for (std::size_t i = 0; i < weight.size(); ++i) out[i] *= weight[i];
  for (std::size_t i = 0; i < bias.size(); ++i) out[i] += bias[i];
}

void l2_normalize(std::span<const float> x, float eps, std::span<float> out) noexcept {
  LEMMA_CHECK(out.size() == x.size());
  divide(x, 0.f, float(std::sqrt(sum_of_squares(x, 0.0) + double(eps))), out);
}

}  // namespace lemma::algorithm
