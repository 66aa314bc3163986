// SPDX-License-Identifier: Apache-2.0
// `lemma capture`: activations at named sites, and steering vectors out of two sets of prompts.
#include "eval/capture.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/raise.hpp"
#include "cli/commands.hpp"
#include "cli/eval_run_options.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/route_recorder.hpp"
#include "eval/steer.hpp"
#include "eval/tokens_file.hpp"
#include "runtime/steering.hpp"

namespace lemma::cli {
namespace {

std::string list(const backend::Program& program, std::span<const std::int32_t> sites) {
  std::string text;
  for (const std::int32_t site : sites) {
    const backend::Program::Site& found = program.tensors[std::size_t(site)];
    text += fmt::format("{:>8}  {}\n", found.width, found.name);
  }
  return text;
}

/// One prompt a line; empty lines do not count.
eval::Prompts read_prompts(const std::filesystem::path& path, const text::Tokenizer& tokenizer) {
  const std::string file = read_file(path);
  eval::Prompts prompts;
  for (std::size_t at = 0; at < file.size();) {
    const std::size_t end = std::min(file.find('\n', at), file.size());
    std::string_view line(file.data() + at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) prompts.push_back(tokenizer.encode(line));
    if (!line.empty() && prompts.back().empty())
      base::raise(ErrorKind::kUsage, "{}: '{}' has no tokens", path.string(), line);
    at = end + 1;
  }
  if (prompts.empty())
    base::raise(ErrorKind::kUsage, "{}: expected one prompt a line, found none", path.string());
  return prompts;
}

std::vector<TokenId> tokens_of(const CaptureOptions& options, const runtime::LoadedModel& model) {
  if (options.tokens) return eval::parse_tokens(read_file(*options.tokens), *options.tokens);
  std::vector<TokenId> ids = model.tokenizer()->encode(*options.text);
  if (ids.empty()) throw Error(ErrorKind::kUsage, "the text has no tokens");
  return ids;
}

/// A folder that is there, or a name that ends like one.
bool names_folder(const std::filesystem::path& path) {
  return !path.has_filename() || std::filesystem::is_directory(path);
}

/// What a predictor that may name as many experts as are chosen would have made of the trace.
std::string describe(const eval::RouteTrace& trace, const std::filesystem::path& path) {
  algorithm::ExpertPredictorSpec all, frequent;
  all.prefetch = frequent.prefetch = trace.chosen;
  frequent.temporal = frequent.spatial = frequent.future_router = 0.f;
  return fmt::format(
      "{} tokens, {} layers, {} of {} experts each: {}\n"
      "named before they were chosen: {:.1f} % by all signals, {:.1f} % by frequency alone, {:.1f} "
      "% "
      "by chance\n",
      trace.tokens(), trace.layers, trace.chosen, trace.experts, path.string(),
      100 * eval::replay(trace, all).recall(), 100 * eval::replay(trace, frequent).recall(),
      100.0 * trace.chosen / trace.experts);
}

void build_steering(eval::ModelRun& run, const CaptureOptions& options, ProgressBar& progress) {
  const backend::Program& program = run.model().program();
  const std::vector<std::int32_t> sites = options.sites.empty()
                                              ? runtime::branches(program)
                                              : eval::matching_sites(program, options.sites);
  const text::Tokenizer& tokenizer = *run.model().tokenizer();
  const eval::Prompts positive = read_prompts(options.steer_from[0], tokenizer);
  const eval::Prompts negative = read_prompts(options.steer_from[1], tokenizer);
  const auto vectors = eval::steering_vectors(
      run, sites, positive, negative,
      options.all_rows ? eval::SteerRows::kAll : eval::SteerRows::kLast, progress.callback());
  eval::write_steering(run.model(), sites, vectors, options.out);
  progress.clear();
  write_err(fmt::format("{} vectors from {} against {} prompts: {}\n", sites.size(),
                        positive.size(), negative.size(), options.out.string()));
}

}  // namespace

int capture(const CaptureOptions& options) {
  ProgressBar progress;
  eval::ModelRun run(model_run_options(options.model, progress.callback()));
  const backend::Program& program = run.model().program();
  if (options.list) {
    const std::vector<std::string> all = {"*"};
    const auto sites = eval::matching_sites(program, options.sites.empty() ? all : options.sites);
    progress.clear();
    write_out(list(program, sites));
    return kDone;
  }
  if (!options.steer_from.empty()) {
    build_steering(run, options, progress);
    return kDone;
  }
  const std::vector<TokenId> tokens = tokens_of(options, run.model());
  if (options.routes) {
    const eval::RouteTrace trace = eval::record_routes(run, tokens);
    eval::write_routes(trace, options.out);
    progress.clear();
    write_err(describe(trace, options.out));
    return kDone;
  }
  const auto sites = eval::matching_sites(program, options.sites);
  eval::capture(run, tokens, sites, options.out, names_folder(options.out));
  progress.clear();
  write_err(fmt::format("{} sites, {} rows each: {}\n", sites.size(), tokens.size(),
                        options.out.string()));
  return kDone;
}

}  // namespace lemma::cli
