// SPDX-License-Identifier: Apache-2.0
#include "model_runs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.hpp"

namespace lemma::test {
namespace {

using runtime::StepPart;

/// Appends the logits of all rows of part `part` to `all`.
void append_logits(const runtime::StepRunner& runner, std::size_t part, std::size_t rows,
                   std::vector<float>& all) {
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<const float> logits = runner.logits(part, r);
    all.insert(all.end(), logits.begin(), logits.end());
  }
}

}  // namespace

bool deep() {
  const char* const value = std::getenv("LEMMA_DEEP");
  return value && std::string_view(value) == "1";
}

runtime::LoadOptions load_options(const RunOptions& options) {
  runtime::LoadOptions load;
  load.backend = options.backend;
  load.threads = options.threads;
  load.numerics = options.numerics;
  return load;
}

ModelUnderTest under_test(std::unique_ptr<runtime::LoadedModel> model, const RunOptions& options) {
  runtime::StateOptions state;
  state.format = options.format;
  state.page_size = options.page_size;
  state.sequences = options.sequences;
  ModelUnderTest run{.model = std::move(model), .space = nullptr};
  run.space = std::make_unique<runtime::StateSpace>(*run.model, state);
  return run;
}

std::vector<float> evaluate(ModelUnderTest& run, std::span<const std::int32_t> tokens,
                            const runtime::Chunking& chunking) {
  std::vector<float> all;
  all.reserve(tokens.size() * run.model->plan().vocabulary);
  state::Sequence sequence(run.space->pool());
  runtime::evaluate(*run.model, *run.space, sequence, tokens, chunking,
                    [&](std::uint32_t, std::span<const float> logits) {
                      all.insert(all.end(), logits.begin(), logits.end());
                    });
  return all;
}

std::vector<std::vector<float>> evaluate_together(ModelUnderTest& run,
                                                  std::span<const std::int32_t> tokens) {
  constexpr std::size_t kRows[3] = {1, 5, 11};
  std::vector<state::Sequence> sequences;
  for (int s = 0; s < 3; ++s) sequences.emplace_back(run.space->pool());
  runtime::StepRunner runner(*run.model, *run.space);
  std::vector<std::vector<float>> together(3);
  for (;;) {
    std::vector<StepPart> parts;
    std::vector<std::size_t> owners;
    for (std::size_t s = 0; s < 3; ++s) {
      const std::size_t done = sequences[s].length();
      const std::size_t rows = std::min(kRows[s], tokens.size() - done);
      if (rows == 0) continue;
      parts.push_back({&sequences[s], tokens.subspan(done, rows), state::TokenClass::kEntered,
                       StepPart::Logits::kAll});
      owners.push_back(s);
    }
    if (parts.empty()) return together;
    runner.run(parts);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      runner.check(p);
      append_logits(runner, p, parts[p].tokens.size(), together[owners[p]]);
    }
  }
}

std::vector<float> evaluate_with_drafts(ModelUnderTest& run, std::span<const std::int32_t> tokens,
                                        std::span<const std::uint32_t> lengths) {
  state::Sequence sequence(run.space->pool());
  runtime::StepRunner runner(*run.model, *run.space);
  std::vector<float> all;
  const auto step = [&](std::span<const std::int32_t> ids, state::TokenClass token_class) {
    const StepPart part{&sequence, ids, token_class, StepPart::Logits::kAll};
    runner.run({&part, 1});
    runner.check(0);
  };
  const auto advance = [&](std::size_t to, state::TokenClass token_class) {
    const std::size_t from = sequence.length();
    if (to <= from) return;
    step(tokens.subspan(from, to - from), token_class);
    append_logits(runner, 0, to - from, all);
  };
  for (const std::uint32_t length : lengths) {
    advance(length, state::TokenClass::kEntered);
    sequence.snapshot();
    const std::int32_t other = length < tokens.size() && tokens[length] == 5 ? 6 : 5;
    const std::int32_t drafts[2] = {other, 7};
    step(drafts, state::TokenClass::kGenerated);
    LEMMA_CHECK(sequence.reachable(length).length == length);
    sequence.rewind(length);
    if (length < tokens.size()) advance(length + 1, state::TokenClass::kGenerated);
  }
  advance(tokens.size(), state::TokenClass::kEntered);
  return all;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size() || a.empty()) return kInfinity;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return kInfinity;
    largest = std::max(largest, std::fabs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

std::string bit_difference(std::span<const float> expected, std::span<const float> found,
                           std::size_t row_width) {
  if (expected.size() != found.size()) return "sizes differ";
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(found[i]))
      return "row " + std::to_string(i / row_width) + " differs first, by " +
             std::to_string(std::fabs(double{expected[i]} - double{found[i]}));
  return "";
}

}  // namespace lemma::test
