// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/topk_moe.hpp"

#include <algorithm>

#include "algorithm/attention/require.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "mixture of experts";

/// out += weight * expert(x), or expert(weight * x). `scratch` [2 D]: the input and the output.
void add_expert(const MoeSpec& spec, std::uint32_t id, float weight, std::span<const float> x,
                ExpertFunction expert, std::span<float> scratch, std::span<float> out) noexcept {
  const std::span<float> scaled = scratch.first(x.size()), y = scratch.last(out.size());
  if (spec.weigh_inputs) {
    for (std::size_t d = 0; d < x.size(); ++d) scaled[d] = weight * x[d];
    expert(id, scaled, y);
    for (std::size_t d = 0; d < out.size(); ++d) out[d] += y[d];
    return;
  }
  expert(id, x, y);
  for (std::size_t d = 0; d < out.size(); ++d) out[d] += weight * y[d];
}

}  // namespace

void MoeSpec::validate() const {
  routing.validate();
  expert.validate();
  if (shared) {
    shared->validate();
    require(shared->width == expert.width, kSpec, "shared width", "that of the experts",
            shared->width);
  }
  require(!shared_gate || shared, kSpec, "shared gate", "a shared expert for it", shared_gate);
}

void combine_experts(const MoeSpec& spec, std::span<const float> x,
                     std::span<const std::uint32_t> ids, std::span<const float> weights,
                     ExpertFunction expert, std::span<float> scratch,
                     std::span<float> out) noexcept {
  LEMMA_CHECK(weights.size() == ids.size() && out.size() == x.size());
  LEMMA_CHECK(scratch.size() == 2 * x.size());
  std::fill(out.begin(), out.end(), 0.f);
  std::uint64_t next = 0;  // every id below it was taken
  for (std::size_t taken = 0; taken < ids.size(); ++taken) {
    std::size_t lowest = ids.size();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= next && (lowest == ids.size() || ids[i] < ids[lowest])) lowest = i;
    }
    LEMMA_CHECK(lowest < ids.size());
    add_expert(spec, ids[lowest], weights[lowest], x, expert, scratch, out);
    next = std::uint64_t(ids[lowest]) + 1;
  }
}

void combine_groups(const MoeSpec& spec, std::span<const float> x, const RouteGroups& groups,
                    ExpertFunction expert, std::span<float> scratch,
                    std::span<float> out) noexcept {
  const std::size_t width = scratch.size() / 2;
  LEMMA_CHECK(width > 0 && out.size() == x.size() && x.size() % width == 0);
  std::fill(out.begin(), out.end(), 0.f);
  for (std::uint32_t e = 0; e + 1 < groups.offsets.size(); ++e) {
    for (std::uint32_t i = groups.offsets[e]; i < groups.offsets[e + 1]; ++i) {
      const std::size_t begin = groups.rows[i] * width;
      add_expert(spec, e, groups.weights[i], x.subspan(begin, width), expert, scratch,
                 out.subspan(begin, width));
    }
  }
}

void add_shared(std::span<const float> shared, const float* gate, std::span<float> out) noexcept {
  LEMMA_CHECK(shared.size() == out.size());
  const float factor = gate != nullptr ? sigmoid(*gate) : 1.f;
  for (std::size_t d = 0; d < out.size(); ++d) out[d] += factor * shared[d];
}

}  // namespace lemma::algorithm
