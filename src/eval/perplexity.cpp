// SPDX-License-Identifier: Apache-2.0
#include "eval/perplexity.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/raise.hpp"
#include "eval/distance.hpp"
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
  const std::size_t window = options.window;
  if (window < 4 || window > run.model().context())
    base::raise(ErrorKind::kUsage, "a window of {} tokens; expected 4 to the context's {}", window,
                run.model().context());
  const bool half = options.score == PerplexityOptions::Score::kHalf;
  const std::size_t least = half ? window : 2;
  if (tokens.size() < least)
    base::raise(ErrorKind::kUsage, "the text has {} tokens; at least {} are needed", tokens.size(),
                least);

  run.prepare();
  Perplexity result{.tokens = tokens.size()};
  Sum nll;
  std::vector<std::int32_t> ids;
  for (std::size_t begin = 0; begin + least <= tokens.size(); begin += window) {
    const auto part = tokens.subspan(begin, std::min(window, tokens.size() - begin));
    ids.assign(part.begin(), part.end());
    if (options.bos) ids[0] = *options.bos;
    const std::size_t first = half ? window / 2 : 0;  // the logits here predict the next token
    state::Sequence sequence(run.space().pool());
    runtime::evaluate(run.model(), run.space(), sequence, ids, {},
                      [&](std::uint32_t position, std::span<const float> logits) {
                        if (position < first || position + 1 >= ids.size()) return;
                        const auto next = std::size_t(ids[position + 1]);
                        nll.add(log_sum_exp(logits) - double(logits[next]));
                      });
    ++result.windows;
    if (options.progress)
      options.progress("evaluating", double(begin + part.size()) / double(tokens.size()));
  }
  result.scored = nll.count;
  result.mean_nll = nll.mean();
  result.standard_error = nll.standard_error();
  return result;
}

}  // namespace lemma::eval
