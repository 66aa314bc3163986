// SPDX-License-Identifier: Apache-2.0
#include "quantize/calibration.hpp"

#include <algorithm>
#include <cmath>

#include "backend/tensor_arena.hpp"
#include "base/raise.hpp"
#include "runtime/evaluation.hpp"

namespace lemma::quantize {
namespace {

/// Waits until all that an input depends on is there, and then hands its rows on.
class InputObserver final : public backend::Observer {
 public:
  InputObserver(const MatrixInputs& inputs, const std::vector<bool>& wanted, TakeRow take)
      : inputs_(inputs), take_(take), by_site_(inputs.program.tensors.size()) {
    pending_.resize(inputs.inputs.size());
    for (std::size_t i = 0; i < inputs.inputs.size(); ++i) {
      if (!wanted[i]) continue;
      const MatrixInput& input = inputs.inputs[i];
      for (const std::int32_t site : {input.site, input.ids, input.weights})
        if (site >= 0) by_site_[std::size_t(site)].push_back(i);
    }
  }

  /// A step cannot throw; whoever ran it asks.
  void check() const {
    if (failed_ >= 0)
      base::raise(ErrorKind::kNonFinite, "NaN or infinity at '{}'",
                  inputs_.program.tensors[std::size_t(failed_)].name);
  }
  bool wanted(std::int32_t site) const { return !by_site_[std::size_t(site)].empty(); }
  bool wants(const backend::Program::Site& site) override {
    const auto& sites = inputs_.program.tensors;
    for (std::size_t i = 0; i < sites.size(); ++i)
      if (sites[i].name == site.name) return !by_site_[i].empty();
    return false;
  }

  void observe(std::int32_t site, const backend::Program::Site&, const backend::Step& step,
               std::span<float> rows) override {
    for (const std::size_t i : by_site_[std::size_t(site)]) {
      const MatrixInput& input = inputs_.inputs[i];
      if (input.experts == 0) {
        for (std::size_t at = 0; at < rows.size(); at += input.cols)
          hand_on(i, 0, rows.subspan(at, input.cols));
        continue;
      }
      Pending& pending = pending_[i];
      std::vector<float>& to = site == input.site  ? pending.rows
                               : site == input.ids ? pending.ids
                                                   : pending.weights;
      to.assign(rows.begin(), rows.end());
      if (pending.rows.empty() || pending.ids.empty() ||
          (input.weights >= 0 && pending.weights.empty()))
        continue;
      hand_on_chosen(i, pending, step.tokens.size());
      pending = {};
    }
  }

 private:
  struct Pending {
    std::vector<float> rows, ids, weights;  ///< of the running step
  };

  void hand_on(std::size_t i, std::size_t matrix, std::span<const float> row) {
    if (std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); }))
      take_(i, matrix, row);
    else if (failed_ < 0)
      failed_ = inputs_.inputs[i].site;
  }

  void hand_on_chosen(std::size_t i, const Pending& pending, std::size_t rows) {
    const MatrixInput& input = inputs_.inputs[i];
    const std::size_t chosen = pending.ids.size() / rows, cols = input.cols;
    std::vector<float> weighed;
    for (std::size_t at = 0; at < rows * chosen; ++at) {
      const float id = pending.ids[at];
      if (!(id >= 0.f && id < float(input.experts))) continue;  // the row has failed
      const std::size_t run = input.runs == 1 ? at / chosen : at;
      std::span<const float> row = std::span(pending.rows).subspan(run * cols, cols);
      if (input.weights >= 0) {
        weighed.assign(row.begin(), row.end());
        for (float& x : weighed) x *= pending.weights[at];
        row = weighed;
      }
      hand_on(i, std::size_t(id), row);
    }
  }

  const MatrixInputs& inputs_;
  TakeRow take_;
  std::vector<std::vector<std::size_t>> by_site_;  ///< inputs that depend on a site
  std::vector<Pending> pending_;                   ///< by input
  std::int32_t failed_ = -1;                       ///< where a row held no numbers
};

/// The program up to the last operation that makes something which is wanted.
backend::Program cut(backend::Program program, const InputObserver& observer) {
  std::size_t needed = 0;
  for (std::size_t i = 0; i < program.operations.size(); ++i)
    for (const backend::Tensor tensor : backend::outputs(program.operations[i]))
      if (observer.wanted(tensor.id)) needed = i + 1;
  program.operations.resize(needed);
  return program;
}

}  // namespace

void calibrate(runtime::LoadedModel& model, const MatrixInputs& inputs,
               const std::vector<bool>& wanted, const Windows& windows,
               const CalibrationOptions& options, TakeRow take) {
  InputObserver observer(inputs, wanted, take);
  const backend::Program program = cut(inputs.program, observer);
  backend::Observer* const observers[] = {&observer};
  const std::uint32_t rows =
      program.whole_prompts ? options.window : std::min(options.rows, options.window);
  runtime::StateSpace space(model, program,
                            {.format = options.state,
                             .sequences = 1,
                             .max_rows = rows,
                             .max_logit_rows = 1,
                             .observers = observers});
  windows([&](std::span<const std::int32_t> ids) {
    state::Sequence sequence(space.pool());
    runtime::evaluate(model, space, sequence, ids, {}, {});
    observer.check();
  });
}

}  // namespace lemma::quantize
