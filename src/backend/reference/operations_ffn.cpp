// SPDX-License-Identifier: Apache-2.0
// The feed-forward operations: the dense block, routing, and the chosen experts of a row.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithm/ffn/topk_moe.hpp"
#include "backend/reference/operations.hpp"
#include "base/check.hpp"

namespace lemma::reference {

void Operations::run(const backend::Mlp& op) noexcept {
  const std::size_t hidden = rows() * op.spec.hidden;
  const float* const in = memory_.arena.data(op.in);
  const std::span<float> up = grown(up_, hidden), gate = grown(gate_, hidden);
  multiply(op.up, op.up_bias, in, rows(), up.data());
  if (op.gate != backend::kNoWeight) {
    multiply(op.gate, op.gate_bias, in, rows(), gate.data());
    algorithm::activate(op.spec.activation, gate, up, up);
  } else {
    algorithm::activate(op.spec.activation, up, {}, up);
  }
  if (op.hidden) std::copy(up.begin(), up.end(), memory_.arena.data(op.hidden));
  multiply(op.down, op.down_bias, up.data(), rows(), memory_.arena.data(op.out));
}

bool Operations::read_ids(std::span<const float> values, std::uint32_t bound,
                          std::span<std::uint32_t> ids) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] >= 0.f && values[i] < float(bound))) return false;
    ids[i] = std::uint32_t(values[i]);
    const auto seen = ids.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(ids.begin(), seen, ids[i]) != seen) return false;
  }
  return true;
}

void Operations::run(const backend::Route& op) noexcept {
  const algorithm::RoutingSpec& spec = op.spec;
  const std::span<std::uint32_t> ids = grown(chosen_, spec.chosen);
  const std::span<std::uint32_t> hashed = grown(indices_, spec.hashed ? spec.chosen : 0);
  const std::span<float> scratch = grown(scratch_, spec.scratch_size());
  for (std::size_t r = 0; r < rows(); ++r) {
    bool routed = true;
    if (spec.hashed) {
      const auto token = static_cast<std::uint64_t>(step_->tokens[r]);
      routed = read_ids(decode(op.hash_table, token, 1, decoded_), spec.experts, hashed);
    }
    const algorithm::RouteInputs inputs{row(op.logits, r), vector(op.correction),
                                        vector(op.expert_scale), hashed};
    routed = routed && algorithm::route(spec, inputs, scratch, ids, row(op.weights, r));
    if (!routed) {
      // Whoever reads the failed row finds experts that exist and count for nothing.
      fail(r, op.logits);
      std::iota(ids.begin(), ids.end(), 0u);
      std::fill_n(row(op.weights, r).begin(), spec.chosen, 0.f);
    }
    std::copy(ids.begin(), ids.end(), row(op.ids, r).begin());
  }
}

void Operations::run_expert(const backend::Experts& op, std::uint32_t expert,
                            std::span<const float> x, std::span<float> y,
                            std::span<float> shown) noexcept {
  const std::size_t hidden = op.spec.hidden, width = op.spec.width;
  const auto own = [&](backend::WeightId bias, std::size_t n) {
    return bias == backend::kNoWeight ? std::span<const float>()
                                      : vector(bias).subspan(expert * n, n);
  };
  const std::span<float> up = grown(up_, hidden), gate = grown(gate_, hidden);
  const std::uint64_t first = std::uint64_t{expert} * hidden;
  multiply(op.up, first, hidden, own(op.up_bias, hidden), x.data(), 1, up.data());
  if (op.gate != backend::kNoWeight) {
    multiply(op.gate, first, hidden, own(op.gate_bias, hidden), x.data(), 1, gate.data());
    algorithm::activate(op.spec.activation, gate, up, up);
  } else {
    algorithm::activate(op.spec.activation, up, {}, up);
  }
  std::copy_n(up.begin(), shown.size(), shown.begin());
  multiply(op.down, std::uint64_t{expert} * width, width, own(op.down_bias, width), up.data(), 1,
           y.data());
}

void Operations::run(const backend::Experts& op) noexcept {
  algorithm::MoeSpec spec;
  spec.expert = op.spec;
  spec.weigh_inputs = op.weigh_inputs;
  spec.routing.experts = op.experts;
  spec.routing.chosen = op.ids.width;
  const std::span<std::uint32_t> ids = grown(chosen_, op.ids.width);
  const std::span<float> scratch = grown(scratch_, 2 * std::size_t{op.spec.width});
  std::size_t r = 0;
  const auto expert = [&](std::uint32_t id, std::span<const float> x, std::span<float> y) {
    std::span<float> shown;
    if (op.hidden) {
      const auto rank = std::size_t(std::find(ids.begin(), ids.end(), id) - ids.begin());
      shown = row(op.hidden, r).subspan(rank * op.spec.hidden, op.spec.hidden);
    }
    run_expert(op, id, x, y, shown);
  };
  for (; r < rows(); ++r) {
    if (!read_ids(row(op.ids, r), op.experts, ids)) {
      fail(r, op.ids);
      std::fill_n(row(op.out, r).begin(), op.out.width, 0.f);
      continue;
    }
    algorithm::combine_experts(spec, row(op.in, r), ids, row(op.weights, r), expert, scratch,
                               row(op.out, r));
  }
}

}  // namespace lemma::reference
