// SPDX-License-Identifier: Apache-2.0
#include "eval/explain.hpp"

#include <algorithm>
#include <chrono>

#include "algorithm/sampling.hpp"
#include "base/raise.hpp"
#include "runtime/step_runner.hpp"

namespace lemma::eval {
namespace {

const char* kind_name(text::TokenKind kind) {
  switch (kind) {
    case text::TokenKind::kNormal:
      return "normal";
    case text::TokenKind::kUnknown:
      return "unknown";
    case text::TokenKind::kControl:
      return "control";
    case text::TokenKind::kUserDefined:
      return "user-defined";
    case text::TokenKind::kUnused:
      return "unused";
    case text::TokenKind::kByte:
      return "byte";
  }
  return "unknown";
}

ExplainedToken explained(const text::Tokenizer& tokenizer, std::int32_t id, bool generated) {
  const bool known = id >= 0 && std::size_t(id) < tokenizer.vocabulary_size();
  return {id, piece_of(tokenizer, id), known ? kind_name(tokenizer.kind(id)) : "unknown",
          generated};
}

/// Runs the model as `lemma run` does and notes each step and choice.
class Narrator {
 public:
  Narrator(ModelRun& run, const ExplainOptions& options, Explanation& explanation)
      : options_(options),
        explanation_(explanation),
        tokenizer_(*run.model().tokenizer()),
        pool_(run.space().pool()),
        sequence_(pool_),
        runner_(run.model(), run.space()),
        random_(options.seed) {
    const std::size_t vocabulary = run.model().program().vocabulary;
    // Ids that the tokenizer cannot spell are never chosen, as in a generation.
    for (std::size_t id = 0; id < vocabulary; ++id)
      fence_.push_back(id < tokenizer_.vocabulary_size());
    if (tokenizer_.vocabulary_size() >= vocabulary) fence_.clear();
  }

  void step(std::span<const std::int32_t> tokens, state::TokenClass token_class, bool logits) {
    using Clock = std::chrono::steady_clock;
    using Logits = runtime::StepPart::Logits;
    const runtime::StepPart part{&sequence_, tokens, token_class,
                                 logits ? Logits::kLast : Logits::kNone};
    const auto begun = Clock::now();
    runner_.run({&part, 1});
    runner_.check(0);
    const std::chrono::duration<double, std::milli> time = Clock::now() - begun;
    rows_ = tokens.size();
    explanation_.steps.push_back({.prefill = token_class == state::TokenClass::kEntered,
                                  .rows = static_cast<std::uint32_t>(tokens.size()),
                                  .length = static_cast<std::uint32_t>(sequence_.length()),
                                  .milliseconds = time.count(),
                                  .formula_bytes = pool_.layout().formula_bytes(sequence_.length()),
                                  .held_bytes = pool_.used_bytes()});
  }

  /// Chooses the next token; false where it ends the text.
  bool choose(std::vector<std::int32_t>& history) {
    const auto logits = runner_.logits(0, rows_ - 1);
    Choice choice{.position = static_cast<std::uint32_t>(history.size())};
    choice.stages = sampling_stages(options_.sampling, logits, history, fence_, tokenizer_);
    algorithm::SamplingTrace trace;
    choice.id = algorithm::sample(options_.sampling, logits, history, fence_, random_, &trace);
    for (const algorithm::Candidate& candidate : trace.kept)
      if (candidate.id == choice.id) choice.probability = candidate.probability;
    choice.piece = piece_of(tokenizer_, choice.id);
    choice.ends = tokenizer_.is_end_of_generation(choice.id);
    if (!choice.ends) history.push_back(choice.id);
    explanation_.choices.push_back(std::move(choice));
    return !explanation_.choices.back().ends;
  }
  std::size_t length() const noexcept { return sequence_.length(); }

 private:
  const ExplainOptions& options_;
  Explanation& explanation_;
  const text::Tokenizer& tokenizer_;
  state::PagePool& pool_;
  state::Sequence sequence_;
  runtime::StepRunner runner_;
  algorithm::Random random_;
  std::vector<std::uint8_t> fence_;
  std::size_t rows_ = 0;  ///< of the last step
};

void check_prompt(const ModelRun& run, std::span<const std::int32_t> prompt) {
  const std::uint32_t vocabulary = run.model().plan().vocabulary;
  if (prompt.empty()) base::raise(ErrorKind::kUsage, "the prompt has no tokens");
  for (const std::int32_t id : prompt)
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocabulary)
      base::raise(ErrorKind::kUsage, "token id {} is outside the vocabulary of {}", id, vocabulary);
  const std::size_t most = std::min<std::size_t>(kMostExplained, run.model().context());
  if (prompt.size() > most)
    base::raise(ErrorKind::kContextFull,
                "the prompt has {} tokens; at most {} can be explained (a map of attention needs a "
                "cell for each pair)",
                prompt.size(), most);
}

}  // namespace

Explanation explain(ModelRun& run, std::span<const std::int32_t> prompt,
                    const ExplainOptions& options) {
  check_prompt(run, prompt);
  algorithm::validate(options.sampling);
  const runtime::LoadedModel& model = run.model();
  const backend::Program& program = model.program();
  Explanation explanation{.info = model.info(),
                          .sites = program.tensors.size(),
                          .prompt_tokens = prompt.size(),
                          .state_format = std::string(to_string(row_format(options.kv)))};
  explanation.stages = stages_of(program, prompt.size());

  const bool has_head = program.vocabulary != 0;
  if (has_head && options.sampling.temperature > 0.f) explanation.seed = options.seed;
  run.prepare({}, static_cast<std::uint32_t>(prompt.size()), 1);
  std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
  std::size_t fed = prompt.size();
  {
    Narrator narrator(run, options, explanation);
    narrator.step(prompt, state::TokenClass::kEntered, has_head);
    const std::size_t most = std::min<std::size_t>(kMostExplained, model.context());
    for (std::uint32_t i = 0; has_head && i < options.max_tokens; ++i) {
      if (!narrator.choose(tokens) || tokens.size() > most) break;
      if (i + 1 == options.max_tokens) break;  // the last one is chosen, not fed
      narrator.step({&tokens.back(), 1}, state::TokenClass::kGenerated, true);
      if (options.progress) options.progress("generating", double(i + 1) / options.max_tokens);
    }
    fed = narrator.length();
    explanation.state_formula = run.space().layout().formula(fed);
  }
  for (std::size_t i = 0; i < tokens.size(); ++i)
    explanation.tokens.push_back(explained(*model.tokenizer(), tokens[i], i >= prompt.size()));
  explanation.layers =
      look_inside(run, std::span(tokens).first(fed), prompt.size(), options.progress);
  return explanation;
}

}  // namespace lemma::eval
