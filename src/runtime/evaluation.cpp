// SPDX-License-Identifier: Apache-2.0
#include "runtime/evaluation.hpp"

#include <algorithm>

#include "base/raise.hpp"

namespace lemma::runtime {
namespace {

/// Where rows look ahead, a prompt that came in two steps would miss what follows.
void check_whole(const state::Sequence& sequence, std::size_t tokens, const Chunking& chunking,
                 std::uint32_t max_rows) {
  if (sequence.length() > 0 || chunking.stepwise || !chunking.cuts.empty() ||
      chunking.generated_from)
    base::raise(ErrorKind::kUnsupported,
                "the rows of this model see the whole prompt: it cannot be cut or continued");
  if (tokens > max_rows)
    base::raise(ErrorKind::kContextFull,
                "the prompt has {} tokens, but this model reads a prompt in one step, and a step "
                "holds {} rows (step_rows)",
                tokens, max_rows);
}

}  // namespace

std::vector<std::pair<std::uint32_t, std::uint32_t>> steps_of(std::uint32_t tokens,
                                                              const Chunking& chunking,
                                                              std::uint32_t max_rows) {
  std::vector<std::uint32_t> ends = chunking.cuts;
  if (chunking.generated_from && *chunking.generated_from > 0 && *chunking.generated_from < tokens)
    ends.push_back(*chunking.generated_from);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  if (!ends.empty() && (ends.front() == 0 || ends.back() >= tokens))
    base::raise(ErrorKind::kUsage, "a cut stands before position {}; expected 1 to {}",
                ends.front() == 0 ? 0 : ends.back(), tokens ? tokens - 1 : 0);
  ends.push_back(tokens);

  std::vector<std::pair<std::uint32_t, std::uint32_t>> steps;
  std::uint32_t begin = 0;
  for (const std::uint32_t end : ends)
    while (begin < end) {
      const std::uint32_t limit = chunking.stepwise ? 1 : max_rows;
      const std::uint32_t next = begin + std::min(limit, end - begin);
      steps.emplace_back(begin, next);
      begin = next;
    }
  return steps;
}

void evaluate(const LoadedModel& model, StateSpace& space, state::Sequence& sequence,
              std::span<const std::int32_t> tokens, const Chunking& chunking,
              const LogitsSink& sink) {
  const std::uint32_t vocabulary = model.plan().vocabulary;
  for (const std::int32_t token : tokens)
    if (token < 0 || static_cast<std::uint32_t>(token) >= vocabulary)
      base::raise(ErrorKind::kUsage, "token id {} is outside the vocabulary of {}", token,
                  vocabulary);
  if (sequence.length() + tokens.size() > model.context())
    base::raise(ErrorKind::kContextFull, "{} tokens after {} do not fit into the context of {}",
                tokens.size(), sequence.length(), model.context());

  const bool whole = model.program().whole_prompts;
  if (sink && model.program().vocabulary == 0)
    base::raise(ErrorKind::kUnsupported,
                "architecture '{}' ends in hidden states; it has no logits",
                model.plan().architecture);
  if (whole) check_whole(sequence, tokens.size(), chunking, space.max_rows());

  StepRunner runner(model, space);
  const auto steps =
      steps_of(static_cast<std::uint32_t>(tokens.size()), chunking, space.max_rows());
  for (const auto& [begin, end] : steps) {
    const bool generated = chunking.generated_from && begin >= *chunking.generated_from;
    const StepPart part{&sequence, tokens.subspan(begin, end - begin),
                        generated ? state::TokenClass::kGenerated : state::TokenClass::kEntered,
                        sink ? StepPart::Logits::kAll : StepPart::Logits::kNone};
    runner.run({&part, 1});
    runner.check(0);
    if (!sink) continue;
    for (std::uint32_t i = begin; i < end; ++i) sink(i, runner.logits(0, i - begin));
  }
}

}  // namespace lemma::runtime
