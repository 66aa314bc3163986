// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/mla.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "algorithm/attention/require.hpp"
#include "algorithm/linear.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "latent attention";

/// How a head of `width` scores and what it sums, for attend_lists.
GqaSpec one_head(const MlaSpec& spec, std::uint32_t width, std::uint32_t value_width) {
  GqaSpec head;
  head.query_heads = head.kv_heads = 1;
  head.head_dim = width;
  head.value_dim = value_width;
  head.scale = spec.scale;
  head.temperature_scale = spec.temperature_scale;
  head.temperature_floor = spec.temperature_floor;
  return head;
}

/// y = W x, W [y.size(), x.size()].
void multiply(std::span<const float> w, std::span<const float> x, std::span<float> y) noexcept {
  for (std::size_t o = 0; o < y.size(); ++o) {
    dot_rows(w.subspan(o * x.size(), x.size()), x.data(), x.size(), 1, &y[o], 1);
  }
}

/// y = W^T x, W [x.size(), y.size()]; each y a sum in ascending order of x.
void multiply_transposed(std::span<const float> w, std::span<const float> x,
                         std::span<float> y) noexcept {
  std::fill(y.begin(), y.end(), 0.f);
  for (std::size_t o = 0; o < x.size(); ++o) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[o] * w[o * y.size() + i];
  }
}

void check_shapes(const MlaSpec& spec, const MlaHead& head, std::span<const float> query,
                  std::span<const float> out) noexcept {
  LEMMA_CHECK(head.key_up.size() == std::size_t(spec.nope_dim) * spec.latent_rank);
  LEMMA_CHECK(head.value_up.size() == std::size_t(spec.value_dim) * spec.latent_rank);
  LEMMA_CHECK(query.size() == spec.query_dim() && out.size() == spec.value_dim);
}

}  // namespace

void MlaSpec::validate() const {
  require(heads > 0, kSpec, "heads", "at least 1", heads);
  require(latent_rank > 0, kSpec, "latent_rank", "at least 1", latent_rank);
  require(rope_dim % 2 == 0, kSpec, "rope_dim", "an even number", rope_dim);
  require(is_row(1, std::uint64_t(nope_dim) + rope_dim) &&
              is_row(heads, std::uint64_t(nope_dim) + rope_dim),
          kSpec, "nope_dim", "nope_dim + rope_dim of at least 1 and a row below 2^32 elements",
          nope_dim);
  require(is_row(1, std::uint64_t(latent_rank) + rope_dim), kSpec, "latent_rank",
          "latent_rank + rope_dim below 2^32", latent_rank);
  require(is_row(heads, value_dim), kSpec, "value_dim", "at least 1 and a row below 2^32 elements",
          value_dim);
  require(is_positive(scale), kSpec, "scale", "a finite number > 0", scale);
  require(is_positive(latent_eps), kSpec, "latent_eps", "a finite number > 0", latent_eps);
  require(!use_rope || rope_dim > 0, kSpec, "use_rope", "false where rope_dim is 0", use_rope);
  require(std::isfinite(temperature_scale), kSpec, "temperature_scale", "a finite number",
          temperature_scale);
  require(temperature_scale == 0.f || temperature_floor > 0, kSpec, "temperature_floor",
          "at least 1 where temperature_scale is set", temperature_floor);
}

Slots MlaSpec::slots() const {
  Slots slots = {row_slot(latent_rank)};
  if (rope_dim > 0) {
    slots.push_back(row_slot(rope_dim));
    slots.back().at_least_f16 = true;
  }
  return slots;
}

void expand_latent(const MlaSpec& spec, const MlaHead& head, std::span<const float> latent,
                   std::span<const float> rope, std::span<float> key,
                   std::span<float> value) noexcept {
  LEMMA_CHECK(latent.size() == spec.latent_rank && (key.empty() || rope.size() == spec.rope_dim));
  LEMMA_CHECK(key.empty() || key.size() == spec.query_dim());
  LEMMA_CHECK(value.empty() || value.size() == spec.value_dim);
  if (!key.empty()) {
    multiply(head.key_up, latent, key.first(spec.nope_dim));
    std::copy(rope.begin(), rope.end(), key.begin() + spec.nope_dim);
  }
  if (!value.empty()) multiply(head.value_up, latent, value);
}

void attend_expanded(const MlaSpec& spec, const MlaHead& head, std::span<const float> query,
                     std::uint32_t position, const RowIndices& visible, const RowReader& latent,
                     const RowReader& rope, std::span<float> out) noexcept {
  check_shapes(spec, head, query, out);
  std::vector<float> key(spec.query_dim()), value(spec.value_dim);
  const RowReader keys = [&](std::uint32_t j) -> std::span<const float> {
    const std::span<const float> shared = spec.rope_dim > 0 ? rope(j) : std::span<const float>();
    expand_latent(spec, head, latent(j), shared, key, {});
    return key;
  };
  const RowReader values = [&](std::uint32_t j) -> std::span<const float> {
    expand_latent(spec, head, latent(j), {}, {}, value);
    return value;
  };
  const RowSource source{visible, keys, values};
  attend_lists(one_head(spec, spec.query_dim(), spec.value_dim), query, position, {&source, 1},
               nullptr, out);
}

void attend_absorbed(const MlaSpec& spec, const MlaHead& head, std::span<const float> query,
                     std::uint32_t position, const RowIndices& visible, const RowReader& latent,
                     const RowReader& rope, std::span<float> out) noexcept {
  check_shapes(spec, head, query, out);
  const std::uint32_t c = spec.latent_rank;
  std::vector<float> absorbed(c + spec.rope_dim), key(c + spec.rope_dim), mean(c);
  multiply_transposed(head.key_up, query.first(spec.nope_dim), std::span(absorbed).first(c));
  std::copy(query.begin() + spec.nope_dim, query.end(), absorbed.begin() + c);
  const RowReader keys = [&](std::uint32_t j) -> std::span<const float> {
    const std::span<const float> z = latent(j);
    std::copy(z.begin(), z.end(), key.begin());
    if (spec.rope_dim > 0) {
      const std::span<const float> shared = rope(j);
      std::copy(shared.begin(), shared.end(), key.begin() + c);
    }
    return key;
  };
  const RowSource source{visible, keys, latent};
  attend_lists(one_head(spec, c + spec.rope_dim, c), absorbed, position, {&source, 1}, nullptr,
               mean);
  multiply(head.value_up, mean, out);
}

}  // namespace lemma::algorithm
