// SPDX-License-Identifier: Apache-2.0
// `lemma bench`: tokens per second of prefill and decode, after a look whether the answer is right.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/raise.hpp"
#include "cli/commands.hpp"
#include "cli/eval_run_options.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/check.hpp"
#include "eval/model_run.hpp"
#include "model/plan_cost.hpp"
#include "runtime/expert_prefetch.hpp"
#include "runtime/recorded_weights.hpp"
#include "runtime/step_runner.hpp"

namespace lemma::cli {
namespace {

constexpr std::uint32_t kPrompt = 512, kStepRows = 512;
/// Of the comparison with the reference: prompt tokens, and generated ones after them.
constexpr std::size_t kCheckPrompt = 6, kCheckGenerated = 2;

/// Ids without meaning, the same each time: speed does not depend on them.
std::vector<TokenId> some_tokens(std::size_t count, std::uint32_t vocabulary) {
  std::vector<TokenId> ids(count);
  std::uint64_t state = 1;
  for (TokenId& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    id = static_cast<TokenId>((state >> 33) % vocabulary);
  }
  return ids;
}

/// Throws kInternal where the logits of a short prompt differ from the reference's.
eval::CheckReport compare_with_reference(eval::ModelRun& run, const BenchOptions& options) {
  eval::ModelRunOptions plain = model_run_options(options.model, {});
  plain.backend = BackendKind::kReference;
  plain.threads = 0;
  plain.tokenizer_may_lack = true;
  eval::ModelRun reference(plain);
  const auto tokens = some_tokens(kCheckPrompt + kCheckGenerated, run.model().plan().vocabulary);
  const bool int8 = options.model.backend != BackendKind::kReference &&
                    options.model.numerics == NumericsMode::kFast;
  eval::CheckReport report = eval::check(
      reference, run, tokens,
      {.int8 = int8, .kv = options.model.kv, .generated_from = kCheckPrompt, .logits_only = true});
  if (report.first_failed)
    base::raise(ErrorKind::kInternal,
                "the backend's logits are wrong: {:.1f} times what the tolerance allows from the "
                "reference's (KL {:.2e} nats, same best token at {} of {} positions); no speed is "
                "worth printing (--no-check skips this)",
                report.sites.back().of_tolerance(), report.logits.mean_kl(),
                report.logits.same_best(), report.logits.positions());
  return report;
}

/// Tokens per second of each repetition.
struct Rates {
  std::vector<double> prefill, decode;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}
double best(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

/// The sequences of a measurement and the step under way.
class Measurement {
 public:
  Measurement(runtime::LoadedModel& model, runtime::StateSpace& space, std::size_t sequences)
      : runner_(model, space), next_(sequences) {
    for (std::size_t s = 0; s < sequences; ++s) sequences_.emplace_back(space.pool());
  }

  /// Enters `length` tokens of each sequence, steps filled with as many sequences as fit.
  void enter(std::span<const TokenId> tokens, std::size_t length) {
    for (std::size_t at = 0; at < tokens.size(); at += kStepRows) {
      const std::size_t end = std::min<std::size_t>(tokens.size(), at + kStepRows);
      begin_step();
      for (std::size_t from = at; from < end;) {
        const std::size_t s = from / length, to = std::min(end, (s + 1) * length);
        add(s, tokens.subspan(from, to - from), state::TokenClass::kEntered,
            to == (s + 1) * length);
        from = to;
      }
      run_step();
    }
  }

  /// The best next token of every sequence joins it.
  void decode_round() {
    const std::vector<TokenId> tokens = next_;
    begin_step();
    for (std::size_t s = 0; s < tokens.size(); ++s) {
      add(s, {&tokens[s], 1}, state::TokenClass::kGenerated, true);
    }
    run_step();
  }

 private:
  using Part = runtime::StepPart;

  void begin_step() {
    parts_.clear();
    owners_.clear();
  }
  void add(std::size_t sequence, std::span<const TokenId> tokens, state::TokenClass token_class,
           bool logits) {
    parts_.push_back({&sequences_[sequence], tokens, token_class,
                      logits ? Part::Logits::kLast : Part::Logits::kNone});
    owners_.push_back(sequence);
  }
  void run_step() {
    runner_.run(parts_);
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      runner_.check(p);
      if (parts_[p].logits == Part::Logits::kNone) continue;
      const auto logits = runner_.logits(p, parts_[p].tokens.size() - 1);
      next_[owners_[p]] =
          static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
  }

  std::deque<state::Sequence> sequences_;
  runtime::StepRunner runner_;
  std::vector<TokenId> next_;
  std::vector<Part> parts_;
  std::vector<std::size_t> owners_;  ///< by part
};

void measure(eval::ModelRun& run, runtime::StateSpace& space, std::span<const TokenId> tokens,
             const BenchOptions& options, Rates& rates) {
  using Clock = std::chrono::steady_clock;
  const auto rate = [](std::size_t count, Clock::time_point from) {
    return double(count) / std::chrono::duration<double>(Clock::now() - from).count();
  };
  Measurement measurement(run.model(), space, options.sequences);
  auto begun = Clock::now();
  measurement.enter(tokens, tokens.size() / options.sequences);
  rates.prefill.push_back(rate(tokens.size(), begun));
  if (options.generate == 0) return;
  begun = Clock::now();
  for (std::uint32_t i = 0; i < options.generate; ++i) measurement.decode_round();
  rates.decode.push_back(rate(std::size_t{options.generate} * options.sequences, begun));
}

/// Bytes of experts that a round of `sequences` tokens leaves out, if no two choose the same.
std::uint64_t idle_expert_bytes(const runtime::LoadedModel& model, std::uint32_t sequences) {
  const runtime::RecordedWeights recorded = runtime::record_weights(model);
  std::uint64_t bytes = 0;
  for (const backend::Operation& operation : recorded.program.operations) {
    const auto* const experts = std::get_if<backend::Experts>(&operation);
    if (!experts) continue;
    const std::uint64_t all = experts->experts;
    const std::uint64_t read = std::min<std::uint64_t>(all, experts->ids.width * sequences);
    for (const backend::WeightId id : {experts->gate, experts->up, experts->down}) {
      if (id == backend::kNoWeight) continue;
      const weights::Matrix& stack = recorded.matrices[static_cast<std::size_t>(id)];
      bytes += weights::row_bytes(stack.format, stack.rows * stack.cols) / all * (all - read);
    }
  }
  return bytes;
}

/// Bytes that a decode round must read for one token: the state of a sequence of `length` positions
/// and its share of every weight but the looked-up tables and the experts that nobody chose.
std::uint64_t bytes_per_token(eval::ModelRun& run, const state::Layout& layout, std::size_t length,
                              std::uint32_t sequences) {
  const model::Plan& plan = run.model().plan();
  const weights::Checkpoint& checkpoint = run.model().checkpoint();
  std::uint64_t bytes = model::cost_of(plan, checkpoint, {}).weight_bytes;
  const auto looked_up = [&](const model::WeightRef& table) {
    const bool tied = table.tensor == plan.head.output.weight.tensor;
    if (table && !tied) bytes -= checkpoint.at(table.tensor).size_bytes();
  };
  looked_up(plan.embedding.table);
  looked_up(plan.embedding.positions);
  bytes -= idle_expert_bytes(run.model(), sequences);
  return bytes / sequences + layout.formula_bytes(length);
}

nlohmann::ordered_json rates_json(std::size_t tokens, const std::vector<double>& rates) {
  return {{"tokens", tokens},
          {"median_tokens_per_second", median(rates)},
          {"best_tokens_per_second", best(rates)},
          {"tokens_per_second", rates}};
}

/// `experts` is null where all experts are in memory.
void print(eval::ModelRun& run, const state::Layout& layout, const BenchOptions& options,
           std::uint32_t prompt, const Rates& rates, const std::optional<eval::CheckReport>& check,
           const runtime::ExpertPrefetch* experts) {
  const std::uint64_t bytes =
      bytes_per_token(run, layout, prompt + options.generate / 2, options.sequences);
  const double gigabytes = double(bytes) * median(rates.decode) / 1e9;
  if (options.json) {
    nlohmann::ordered_json json;
    json["backend"] = run.model().backend().description();
    json["sequences"] = options.sequences;
    json["prefill"] = rates_json(prompt, rates.prefill);
    json["decode"] = rates_json(options.generate, rates.decode);
    json["decode"]["bytes_per_token"] = bytes;
    json["decode"]["gigabytes_per_second"] = gigabytes;
    if (check) json["check"]["mean_kl"] = check->logits.mean_kl();
    if (check) json["check"]["of_tolerance"] = check->sites.back().of_tolerance();
    if (experts)
      json["experts"] = {{"bytes_in_file", run.model().experts_in_file()},
                         {"chosen", experts->chosen()},
                         {"foreseen", experts->foreseen()}};
    return write_out(json.dump(2) + "\n");
  }
  std::string text = fmt::format("{}\n", run.model().backend().description());
  if (options.sequences > 1) text += fmt::format("{} sequences together\n", options.sequences);
  text += fmt::format("prefill {:>6} tokens  median {:>10.1f} tokens/s  best {:>10.1f}\n", prompt,
                      median(rates.prefill), best(rates.prefill));
  if (options.generate > 0)
    text += fmt::format(
        "decode  {:>6} tokens  median {:>10.1f} tokens/s  best {:>10.1f}  {} per token, {:.2f} "
        "GB/s\n",
        options.generate, median(rates.decode), best(rates.decode), format_bytes(bytes), gigabytes);
  if (experts)
    text += fmt::format("experts {} in the file; {} of {} choices foreseen\n",
                        format_bytes(run.model().experts_in_file()), experts->foreseen(),
                        experts->chosen());
  if (check)
    text +=
        fmt::format("logits agree with the reference: KL {:.1e} nats, {:.3f} of the tolerance\n",
                    check->logits.mean_kl(), check->sites.back().of_tolerance());
  write_out(text);
}

}  // namespace

int bench(const BenchOptions& options) {
  ProgressBar progress;
  eval::ModelRunOptions settings = model_run_options(options.model, progress.callback());
  settings.tokenizer_may_lack = true;  // the tokens are made up
  eval::ModelRun run(settings);
  const std::uint32_t context = run.model().context();
  const std::uint32_t room = context > options.generate ? context - options.generate : 0;
  const std::uint32_t prompt = options.prompt.value_or(std::min(kPrompt, room));
  if (prompt == 0 || prompt > room)
    base::raise(ErrorKind::kContextFull,
                "{} prompt tokens and {} generated ones do not fit into the context of {}", prompt,
                options.generate, context);
  std::optional<eval::CheckReport> check;
  if (options.check) check = compare_with_reference(run, options);

  const std::unique_ptr<runtime::ExpertPrefetch> experts = runtime::prefetch_of_file(run.model());
  std::vector<backend::Observer*> observers;
  if (experts) observers.push_back(experts.get());
  runtime::StateOptions state = run.state_options(observers, kStepRows, options.sequences);
  state.sequences = options.sequences;
  runtime::StateSpace space(run.model(), state);
  const auto tokens =
      some_tokens(std::size_t{prompt} * options.sequences, run.model().plan().vocabulary);
  Rates rates;
  for (std::uint32_t i = 0; i < options.repetitions; ++i) {
    measure(run, space, tokens, options, rates);
    progress.update("measuring", double(i + 1) / options.repetitions);
  }
  progress.clear();
  print(run, space.layout(), options, prompt, rates, check, experts.get());
  return kDone;
}

}  // namespace lemma::cli
