// SPDX-License-Identifier: Apache-2.0
// `lemma eval`: perplexity of a text.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/utf8.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/perplexity.hpp"

namespace lemma::cli {
namespace {

constexpr std::uint32_t kWindow = 512;

std::vector<TokenId> encode_text(const EvalOptions& options, const text::Tokenizer& tokenizer) {
  const std::string text = read_file(options.text);
  if (!base::is_valid_utf8(text))
    base::log(base::LogLevel::kWarning, "{}: not valid UTF-8", options.text.string());
  std::vector<TokenId> ids = tokenizer.encode(text);
  if (tokenizer.adds_eos() && !ids.empty()) ids.pop_back();  // the text goes on
  return ids;
}

std::string to_json(const eval::Perplexity& result, const EvalOptions& options,
                    std::uint32_t window, double seconds) {
  nlohmann::ordered_json json;
  json["perplexity"] = result.perplexity();
  json["mean_nll"] = result.mean_nll;
  json["standard_error_nll"] = result.standard_error;
  json["tokens"] = result.tokens;
  json["scored"] = result.scored;
  json["windows"] = result.windows;
  json["window"] = window;
  json["score"] = options.score_half ? "half" : "all";
  json["seconds"] = seconds;
  return json.dump(2) + "\n";
}

}  // namespace

int eval(const EvalOptions& options) {
  ProgressBar progress;
  eval::ModelRun run({.path = options.model.path,
                      .backend = options.model.backend,
                      .threads = options.model.threads,
                      .kv = options.model.kv,
                      .numerics = options.model.numerics,
                      .context = options.model.context,
                      .progress = progress.callback()});
  const text::Tokenizer& tokenizer = *run.model().tokenizer();
  const std::vector<TokenId> tokens = encode_text(options, tokenizer);
  eval::PerplexityOptions settings{
      .window = options.window.value_or(std::min(kWindow, run.model().context())),
      .score = options.score_half ? eval::PerplexityOptions::Score::kHalf
                                  : eval::PerplexityOptions::Score::kAll,
      .progress = progress.callback()};
  if (tokenizer.adds_bos()) settings.bos = tokenizer.bos();

  const auto begun = std::chrono::steady_clock::now();
  const eval::Perplexity result = eval::perplexity(run, tokens, settings);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begun;
  progress.clear();
  if (options.json) {
    write_out(to_json(result, options, settings.window, time.count()));
  } else {
    write_out(fmt::format("perplexity {:.4f} +- {:.4f}\n", result.perplexity(),
                          result.perplexity() * result.standard_error));
    write_err(fmt::format(
        "{} of {} tokens scored ({}), {} windows of {}, {:.2f} s, {:.1f} tokens/s\n", result.scored,
        result.tokens, options.score_half ? "half" : "all", result.windows, settings.window,
        time.count(), double(result.tokens) / std::max(time.count(), 1e-9)));
  }
  return kDone;
}

}  // namespace lemma::cli
