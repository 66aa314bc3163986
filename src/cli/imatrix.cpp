// SPDX-License-Identifier: Apache-2.0
// `lemma imatrix`: how much each input of a model's matrices matters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>

#include "cli/commands.hpp"
#include "cli/eval_run_options.hpp"
#include "cli/imatrix_text.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/model_run.hpp"
#include "quantize/importance_collector.hpp"

namespace lemma::cli {
namespace {

std::string to_line(const quantize::Importance::Unseen& unseen) {
  constexpr std::size_t kShown = 32;
  const std::span shown = std::span(unseen.experts).first(std::min(kShown, unseen.experts.size()));
  return fmt::format("note: {}: {} of {} experts were never seen: {}{}\n", unseen.tensor,
                     unseen.experts.size(), unseen.of, fmt::join(shown, ", "),
                     shown.size() < unseen.experts.size() ? ", ..." : "");
}

}  // namespace

int imatrix(const ImatrixOptions& options) {
  ProgressBar progress;
  quantize::Importance before;
  for (const std::string& path : options.in) before.add(quantize::Importance::read(path));
  eval::ModelRun run(model_run_options(options.model, progress.callback()));
  CalibrationTokens text = calibration_tokens(options.text, run.model(), progress.callback());
  text.options.state = eval::row_format(options.model.kv);

  quantize::Collected collected =
      quantize::collect_importance(run.model(), text.windows, text.options);
  quantize::Importance& importance = collected.importance;
  importance.texts = {options.text.path.filename().string()};
  importance.add(before);
  importance.write(options.out);
  progress.clear();

  for (const auto& unseen : importance.unseen()) write_err(to_line(unseen));
  if (!collected.unknown.empty())
    write_err(fmt::format("note: nothing is known of what these meet: {}\n",
                          fmt::join(collected.unknown, ", ")));
  write_err(fmt::format("{} matrices, {} tokens in {} windows: {}\n", importance.entries.size(),
                        text.ids.size(), importance.parts, options.out.string()));
  return kDone;
}

}  // namespace lemma::cli
