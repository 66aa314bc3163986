// SPDX-License-Identifier: Apache-2.0
// Routing: the experts of each row and what weighs them.
#include <algorithm>
#include <numeric>
#include <vector>

#include "algorithm/ffn/routing.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/expert_grouping.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

class RouteExecutor final : public Executor {
 public:
  RouteExecutor(const backend::Route& op, const Context& context)
      : op_(op),
        correction_(context.vector(op.correction)),
        expert_scale_(context.vector(op.expert_scale)) {
    LEMMA_CHECK(op.logits.width == op.spec.experts && op.ids.width == op.spec.chosen);
    for (int t = 0; t < context.pool.threads(); ++t) {
      Scratch& s = scratch_.emplace_back();
      s.scores.resize(op.spec.scratch_size());
      s.entry.resize(op.spec.chosen);
      s.ids.resize(op.spec.chosen);
      s.hashed.resize(op.spec.hashed ? op.spec.chosen : 0);
    }
  }

  void run(Context& context) noexcept override {
    // A score is an exp, and the choice compares each expert a few times.
    constexpr std::size_t kWorkPerExpert = 64;
    const std::size_t work = context.rows() * op_.spec.experts * kWorkPerExpert;
    context.each(context.rows(), work, [&](std::size_t r, int thread) {
      route_row(context, r, scratch_[static_cast<std::size_t>(thread)]);
    });
    context.settle(op_.logits);
  }

 private:
  struct Scratch {
    std::vector<float> scores, entry;
    std::vector<std::uint32_t> ids, hashed;
  };

  void route_row(Context& context, std::size_t r, Scratch& s) const noexcept {
    const std::size_t k = op_.spec.chosen;
    float* const ids = context.arena.row(op_.ids, r);
    float* const weights = context.arena.row(op_.weights, r);
    bool routed = true;
    if (op_.spec.hashed) {
      const weights::Matrix& table = context.weight(op_.hash_table).matrix;
      weights::traits(table.format)
          .dequantize(table.row(static_cast<std::uint64_t>(context.step().tokens[r])), s.entry);
      routed = read_ids(s.entry.data(), k, op_.spec.experts, s.hashed.data());
    }
    const algorithm::RouteInputs inputs{
        {context.arena.row(op_.logits, r), op_.logits.width}, correction_, expert_scale_, s.hashed};
    if (!routed || !algorithm::route(op_.spec, inputs, s.scores, s.ids, {weights, k})) {
      // Whoever reads the failed row finds experts that exist and count for nothing.
      context.mark(r);
      std::iota(s.ids.begin(), s.ids.end(), 0u);
      std::fill_n(weights, k, 0.f);
    }
    std::copy(s.ids.begin(), s.ids.end(), ids);
  }

  backend::Route op_;
  std::span<const float> correction_, expert_scale_;
  std::vector<Scratch> scratch_;  ///< by thread
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Route& op, const Context& context) {
  return std::make_unique<RouteExecutor>(op, context);
}

}  // namespace lemma::cpu
