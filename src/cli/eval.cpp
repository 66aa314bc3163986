// SPDX-License-Identifier: Apache-2.0
// `lemma eval`: perplexity of a text, and the distance of a model from another.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "cli/commands.hpp"
#include "cli/eval_run_options.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/compare.hpp"
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

eval::ModelRun open(const EvalOptions& options, const std::filesystem::path& path,
                    ProgressBar& progress) {
  eval::ModelRunOptions settings = model_run_options(options.model, progress.callback());
  settings.path = path;
  return eval::ModelRun(settings);
}

void report_perplexity(eval::ModelRun& run, const std::vector<TokenId>& tokens,
                       const eval::PerplexityOptions& settings, const EvalOptions& options,
                       ProgressBar& progress) {
  const auto begun = std::chrono::steady_clock::now();
  const eval::Perplexity result = eval::perplexity(run, tokens, settings);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begun;
  progress.clear();
  if (options.json) return write_out(to_json(result, options, settings.window, time.count()));
  write_out(fmt::format("perplexity {:.4f} +- {:.4f}\n", result.perplexity(),
                        result.perplexity() * result.standard_error));
  write_err(fmt::format(
      "{} of {} tokens scored ({}), {} windows of {}, {:.2f} s, {:.1f} tokens/s\n", result.scored,
      result.tokens, options.score_half ? "half" : "all", result.windows, settings.window,
      time.count(), double(result.tokens) / std::max(time.count(), 1e-9)));
}

std::string comparison_json(const eval::Comparison& result) {
  nlohmann::ordered_json json;
  json["tokens"] = result.tokens;
  json["scored"] = result.scored.size();
  json["windows"] = result.windows;
  json["perplexity"] = std::exp(result.mean_nll());
  json["other_perplexity"] = std::exp(result.other_mean_nll());
  json["mean_kl"] = result.mean_kl();
  json["standard_error_kl"] = result.kl_standard_error();
  json["median_kl"] = result.kl_quantile(0.5);
  json["kl_99"] = result.kl_quantile(0.99);
  json["max_kl"] = result.kl_quantile(1);
  json["same_best"] = result.same_best();
  json["rms_probability_difference"] = result.rms_probability_difference();
  return json.dump(2) + "\n";
}

std::string comparison_text(const eval::Comparison& result) {
  return fmt::format(
      "perplexity            {:.4f}\nof the other          {:.4f}\n"
      "KL divergence         {:.6f} +- {:.6f} nats a token\n"
      "  median, 99 %, max   {:.6f} {:.6f} {:.6f}\n"
      "same likeliest token  {:.3f} %\nRMS of differences of the next token's probability  {:.3f} "
      "%\n",
      std::exp(result.mean_nll()), std::exp(result.other_mean_nll()), result.mean_kl(),
      result.kl_standard_error(), result.kl_quantile(0.5), result.kl_quantile(0.99),
      result.kl_quantile(1), 100 * result.same_best(), 100 * result.rms_probability_difference());
}

void write_per_token(const eval::Comparison& result, const text::Tokenizer& tokenizer,
                     const std::filesystem::path& path) {
  std::ofstream file(path);
  file << "position\ttoken\tpiece\tnll\tother_nll\tkl\tbest\tother_best\n";
  for (const eval::ComparedToken& t : result.scored)
    file << fmt::format("{}\t{}\t{}\t{:.6f}\t{:.6f}\t{:.6f}\t{}\t{}\n", t.position, t.token,
                        nlohmann::json(base::repair_utf8(tokenizer.piece(t.token))).dump(), t.nll,
                        t.other_nll, t.kl, t.best, t.other_best);
  file.close();
  if (!file) base::raise(ErrorKind::kIo, "{}: cannot be written", path.string());
}

/// Both models must see the same ids.
void require_same_tokens(const std::vector<TokenId>& tokens, const eval::ModelRun& other,
                         const EvalOptions& options) {
  if (encode_text(options, *other.model().tokenizer()) != tokens)
    base::raise(ErrorKind::kUsage, "{}: makes other tokens of the text; the two cannot be compared",
                options.against->string());
}

void report_comparison(eval::ModelRun& run, const std::vector<TokenId>& tokens,
                       const eval::PerplexityOptions& settings, const EvalOptions& options,
                       ProgressBar& progress) {
  std::optional<eval::ModelRun> other_run;
  std::unique_ptr<eval::OtherLogits> other;
  if (options.against) {
    other_run.emplace(open(options, *options.against, progress));
    require_same_tokens(tokens, *other_run, options);
    other = eval::logits_of(*other_run);
  } else {
    other = eval::saved_logits(*options.against_logits, tokens, settings.window);
  }
  const eval::Comparison result = eval::compare(run, *other, tokens, settings);
  progress.clear();
  if (options.per_token) write_per_token(result, *run.model().tokenizer(), *options.per_token);
  write_out(options.json ? comparison_json(result) : comparison_text(result));
}

}  // namespace

int eval(const EvalOptions& options) {
  ProgressBar progress;
  eval::ModelRun run = open(options, options.model.path, progress);
  const text::Tokenizer& tokenizer = *run.model().tokenizer();
  const std::vector<TokenId> tokens = encode_text(options, tokenizer);
  eval::PerplexityOptions settings{
      .window = options.window.value_or(std::min(kWindow, run.model().context())),
      .score = options.score_half ? eval::PerplexityOptions::Score::kHalf
                                  : eval::PerplexityOptions::Score::kAll,
      .progress = progress.callback()};
  if (tokenizer.adds_bos()) settings.bos = tokenizer.bos();

  if (options.save_logits) {
    eval::save_logits(run, tokens, settings, *options.save_logits);
    progress.clear();
    write_err(
        fmt::format("logits of {} tokens in {}\n", tokens.size(), options.save_logits->string()));
  } else if (options.against || options.against_logits) {
    report_comparison(run, tokens, settings, options, progress);
  } else {
    report_perplexity(run, tokens, settings, options, progress);
  }
  return kDone;
}

}  // namespace lemma::cli
