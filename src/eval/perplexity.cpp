// SPDX-License-Identifier: Apache-2.0
#include "eval/perplexity.hpp"

#include <algorithm>
#include <cmath>

#include "eval/distance.hpp"
#include "eval/windows.hpp"
#include "runtime/evaluation.hpp"

namespace lemma::eval {
namespace {

/// Mean and spread of numbers that come one by one.
struct Sum {
  std::size_t count = 0;
  double sum = 0, squares = 0;
  void add(double x) {
    ++count;
    sum += x;
    squares += x * x;
  }
  double mean() const { return count ? sum / double(count) : 0; }
  double standard_error() const {
    if (count < 2) return 0;
    const double variance = squares / double(count) - mean() * mean();
    return std::sqrt(std::max(variance, 0.0) / double(count - 1));
  }
};

}  // namespace

double Perplexity::perplexity() const {
  return std::exp(mean_nll);
}

Perplexity perplexity(ModelRun& run, std::span<const std::int32_t> tokens,
                      const PerplexityOptions& options) {
  run.prepare();
  Perplexity result{.tokens = tokens.size()};
  Sum nll;
  for_each_window(tokens, options, run.model().context(), [&](const Window& window) {
    state::Sequence sequence(run.space().pool());
    runtime::evaluate(run.model(), run.space(), sequence, window.ids, {},
                      [&](std::uint32_t row, std::span<const float> logits) {
                        if (!window.scores(row)) return;
                        const auto next = std::size_t(window.ids[row + 1]);
                        nll.add(log_sum_exp(logits) - double(logits[next]));
                      });
    ++result.windows;
  });
  result.scored = nll.count;
  result.mean_nll = nll.mean();
  result.standard_error = nll.standard_error();
  return result;
}

}  // namespace lemma::eval
