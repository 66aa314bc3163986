// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/gqa.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "algorithm/linear.hpp"
#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::uint32_t kScaleGroup = 32;  ///< shared by a scale where 32 divides the head width

template <typename T>
void require(bool holds, const char* field, const char* expected, T found) {
  if (!holds) {
    base::raise(ErrorKind::kUnsupported, "attention {}: expected {}, found {}", field, expected,
                found);
  }
}

Slot rows_of(std::uint32_t kv_heads, std::uint32_t dim, std::uint32_t window) {
  Slot slot;
  slot.kind = SlotKind::kRows;
  slot.width = kv_heads * dim;
  slot.window = window;
  slot.group = std::gcd(dim, kScaleGroup);  // no group may straddle two heads
  return slot;
}

}  // namespace

void GqaSpec::validate() const {
  constexpr std::uint64_t kMaxWidth = std::numeric_limits<std::uint32_t>::max();
  require(query_heads > 0, "query_heads", "at least 1", query_heads);
  require(kv_heads > 0 && query_heads % kv_heads == 0, "kv_heads", "a divisor of query_heads",
          kv_heads);
  require(head_dim > 0 && std::uint64_t(query_heads) * head_dim <= kMaxWidth, "head_dim",
          "at least 1 and a row below 2^32 elements", head_dim);
  require(value_dim > 0 && std::uint64_t(query_heads) * value_dim <= kMaxWidth, "value_dim",
          "at least 1 and a row below 2^32 elements", value_dim);
  require(std::isfinite(scale) && scale > 0.f, "scale", "a finite number > 0", scale);
  require(std::isfinite(softcap) && softcap >= 0.f, "softcap", "a finite number >= 0", softcap);
  require(std::isfinite(alibi_max_bias) && alibi_max_bias >= 0.f, "alibi_max_bias",
          "a finite number >= 0", alibi_max_bias);
  require(std::isfinite(temperature_scale), "temperature_scale", "a finite number",
          temperature_scale);
  require(temperature_scale == 0.f || temperature_floor > 0, "temperature_floor",
          "at least 1 where temperature_scale is set", temperature_floor);
}

Slots GqaSpec::slots() const {
  return {rows_of(kv_heads, head_dim, window), rows_of(kv_heads, value_dim, window)};
}

float query_temperature(const GqaSpec& spec, std::uint32_t position) noexcept {
  if (spec.temperature_scale == 0.f) return 1.f;
  return 1.f +
         spec.temperature_scale * std::log1p(static_cast<float>(position / spec.temperature_floor));
}

VisibleRange visible_range(std::uint32_t position, std::uint32_t window,
                           std::uint32_t visible_end) noexcept {
  const std::uint32_t end = position + 1;
  const std::uint32_t begin = window != 0 && end > window ? end - window : 0;
  return {begin, std::max(end, visible_end)};
}

std::vector<float> alibi_slopes(std::uint32_t query_heads, float max_bias) {
  std::vector<float> slopes(query_heads);
  if (query_heads == 0) return slopes;
  // The first n heads, n the largest power of two, follow n's own geometric sequence; the others
  // take every second term (the odd ones, which n's own lacks) of the sequence of 2n.
  const std::uint32_t n = std::bit_floor(query_heads);
  for (std::uint32_t h = 0; h < query_heads; ++h) {
    const double step = h < n ? double(h) + 1.0 : double(h - n) + 0.5;
    slopes[h] = float(std::exp2(-double(max_bias) * step / double(n)));
  }
  return slopes;
}

void attend(const GqaSpec& spec, std::span<const float> query, std::uint32_t position,
            VisibleRange range, const RowReader& key, const RowReader& value, const float* sink,
            float slope, std::span<float> out) noexcept {
  LEMMA_CHECK(range.begin < range.end);
  LEMMA_CHECK(query.size() == spec.head_dim && out.size() == spec.value_dim);
  thread_local std::vector<float> weights;  // grows to the longest range that a thread has seen
  weights.resize(range.end - range.begin);

  const float temperature = query_temperature(spec, position);
  float largest = sink ? *sink : -std::numeric_limits<float>::infinity();
  for (std::uint32_t j = range.begin; j < range.end; ++j) {
    const std::span<const float> k = key(j);
    float score = 0.f;
    for (std::size_t i = 0; i < query.size(); ++i) score += query[i] * temperature * k[i];
    score = softcap(score * spec.scale, spec.softcap);
    if (slope != 0.f) score += slope * float(std::int64_t(j) - std::int64_t(position));
    weights[j - range.begin] = score;
    largest = std::max(largest, score);
  }
  float mass = 0.f;
  for (float& weight : weights) {
    weight = std::exp(weight - largest);
    mass += weight;
  }
  if (sink) mass += std::exp(*sink - largest);

  std::fill(out.begin(), out.end(), 0.f);
  for (std::uint32_t j = range.begin; j < range.end; ++j) {
    const float probability = weights[j - range.begin] / mass;
    const std::span<const float> v = value(j);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += probability * v[i];
  }
}

}  // namespace lemma::algorithm
