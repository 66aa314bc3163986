// SPDX-License-Identifier: Apache-2.0
// `lemma bench`: tokens per second of prefill and decode, after a look whether the answer is right.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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

void measure(eval::ModelRun& run, std::span<const TokenId> prompt, std::uint32_t generate,
             Rates& rates) {
  using Clock = std::chrono::steady_clock;
  const auto rate = [](std::size_t tokens, Clock::time_point from) {
    return double(tokens) / std::chrono::duration<double>(Clock::now() - from).count();
  };
  state::Sequence sequence(run.space().pool());
  runtime::StepRunner runner(run.model(), run.space());
  using Part = runtime::StepPart;
  const auto step = [&](std::span<const TokenId> tokens, state::TokenClass token_class,
                        Part::Logits wanted) {
    const Part part{&sequence, tokens, token_class, wanted};
    runner.run({&part, 1});
    runner.check(0);
  };

  auto begun = Clock::now();
  for (std::size_t at = 0; at < prompt.size(); at += kStepRows) {
    const std::size_t rows = std::min<std::size_t>(kStepRows, prompt.size() - at);
    const bool last = at + rows == prompt.size();
    step(prompt.subspan(at, rows), state::TokenClass::kEntered,
         last ? Part::Logits::kLast : Part::Logits::kNone);
  }
  rates.prefill.push_back(rate(prompt.size(), begun));
  if (generate == 0) return;

  std::size_t last_row = (prompt.size() - 1) % kStepRows;
  begun = Clock::now();
  for (std::uint32_t i = 0; i < generate; ++i) {
    const auto logits = runner.logits(0, last_row);
    const TokenId next =
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    step({&next, 1}, state::TokenClass::kGenerated, Part::Logits::kLast);
    last_row = 0;
  }
  rates.decode.push_back(rate(generate, begun));
}

/// Bytes that a decode round must read: every weight but the looked-up tables, and the state of a
/// sequence of `length` positions.
std::uint64_t bytes_per_token(eval::ModelRun& run, std::size_t length) {
  const model::Plan& plan = run.model().plan();
  const weights::Checkpoint& checkpoint = run.model().checkpoint();
  std::uint64_t bytes = model::cost_of(plan, checkpoint, {}).weight_bytes;
  const auto looked_up = [&](const model::WeightRef& table) {
    const bool tied = table.tensor == plan.head.output.weight.tensor;
    if (table && !tied) bytes -= checkpoint.at(table.tensor).size_bytes();
  };
  looked_up(plan.embedding.table);
  looked_up(plan.embedding.positions);
  return bytes + run.space().layout().formula_bytes(length);
}

nlohmann::ordered_json rates_json(std::size_t tokens, const std::vector<double>& rates) {
  return {{"tokens", tokens},
          {"median_tokens_per_second", median(rates)},
          {"best_tokens_per_second", best(rates)},
          {"tokens_per_second", rates}};
}

void print(eval::ModelRun& run, const BenchOptions& options, std::uint32_t prompt,
           const Rates& rates, const std::optional<eval::CheckReport>& check) {
  const std::uint64_t bytes = bytes_per_token(run, prompt + options.generate / 2);
  const double gigabytes = double(bytes) * median(rates.decode) / 1e9;
  if (options.json) {
    nlohmann::ordered_json json;
    json["backend"] = run.model().backend().description();
    json["prefill"] = rates_json(prompt, rates.prefill);
    json["decode"] = rates_json(options.generate, rates.decode);
    json["decode"]["bytes_per_token"] = bytes;
    json["decode"]["gigabytes_per_second"] = gigabytes;
    if (check) json["check"]["mean_kl"] = check->logits.mean_kl();
    if (check) json["check"]["of_tolerance"] = check->sites.back().of_tolerance();
    return write_out(json.dump(2) + "\n");
  }
  std::string text = fmt::format("{}\n", run.model().backend().description());
  text += fmt::format("prefill {:>6} tokens  median {:>10.1f} tokens/s  best {:>10.1f}\n", prompt,
                      median(rates.prefill), best(rates.prefill));
  if (options.generate > 0)
    text += fmt::format(
        "decode  {:>6} tokens  median {:>10.1f} tokens/s  best {:>10.1f}  {} per token, {:.2f} "
        "GB/s\n",
        options.generate, median(rates.decode), best(rates.decode), format_bytes(bytes), gigabytes);
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

  run.prepare({}, kStepRows, 1);
  const auto tokens = some_tokens(prompt, run.model().plan().vocabulary);
  Rates rates;
  for (std::uint32_t i = 0; i < options.repetitions; ++i) {
    measure(run, tokens, options.generate, rates);
    progress.update("measuring", double(i + 1) / options.repetitions);
  }
  progress.clear();
  print(run, options, prompt, rates, check);
  return kDone;
}

}  // namespace lemma::cli
