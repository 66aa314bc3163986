// SPDX-License-Identifier: Apache-2.0
// `lemma explain`: the way of a prompt through a model.
#include "eval/explain.hpp"

#include <unistd.h>

#include <fstream>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "base/raise.hpp"
#include "cli/commands.hpp"
#include "cli/eval_run_options.hpp"
#include "cli/explain_views.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"

namespace lemma::cli {
namespace {

std::vector<TokenId> tokens_of(const ExplainOptions& options, const text::Tokenizer& tokenizer) {
  const std::string text = options.prompt.from_stdin ? read_stdin() : options.prompt.text;
  std::vector<TokenId> ids = tokenizer.encode(text, {.parse_special = options.parse_special});
  if (ids.empty() && tokenizer.bos()) ids.push_back(*tokenizer.bos());
  if (ids.empty())
    throw Error(ErrorKind::kUsage, "the prompt is empty and this model has no BOS: give a prompt");
  return ids;
}

std::uint64_t fresh_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

/// Written beside its name and renamed, so that a page is whole or not there.
void publish(const std::filesystem::path& path, const std::string& page) {
  const std::filesystem::path partial = path.string() + ".partial-" + std::to_string(::getpid());
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file.write(page.data(), static_cast<std::streamsize>(page.size()));
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  if (!file || error) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    base::raise(ErrorKind::kIo, "{}: cannot be written", path.string());
  }
}

}  // namespace

int explain(const ExplainOptions& options) {
  ProgressBar progress;
  eval::ModelRun run(model_run_options(options.model, progress.callback()));
  const std::vector<TokenId> prompt = tokens_of(options, *run.model().tokenizer());
  const eval::Explanation explanation =
      eval::explain(run, prompt,
                    {.sampling = options.sampling,
                     .seed = options.seed ? *options.seed : fresh_seed(),
                     .max_tokens = options.max_tokens,
                     .kv = options.model.kv,
                     .progress = progress.callback()});
  progress.clear();
  if (options.html) publish(*options.html, explanation_html(explanation));
  write_out(options.json ? explanation_json(explanation) : explanation_text(explanation));
  return kDone;
}

}  // namespace lemma::cli
