// SPDX-License-Identifier: Apache-2.0
// `lemma quantize`: a model in another format.
#include "quantize/quantize.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "base/topology.hpp"
#include "cli/commands.hpp"
#include "cli/imatrix_text.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::cli {
namespace {

std::string to_line(const quantize::Note& note) {
  if (note.tensors.size() == 1) return fmt::format("note: {}: {}\n", note.tensors[0], note.text);
  return fmt::format("note: {} tensors ({}, ..., {}): {}\n", note.tensors.size(),
                     note.tensors.front(), note.tensors.back(), note.text);
}

quantize::Report with_gptq(const QuantizeOptions& options, quantize::Options settings,
                           ProgressBar& progress) {
  const auto model = runtime::LoadedModel::open(
      options.in, {.threads = options.threads, .progress = progress.callback()});
  const CalibrationTokens text =
      calibration_tokens(options.calibration, *model, progress.callback());
  quantize::Hessians hessians(*model, text.windows, text.options, settings.threads);
  settings.hessians = &hessians;
  settings.calibration = text.digest;
  settings.damping = options.damping;
  quantize::Report report = runtime::with_path(
      options.in, [&] { return quantize::quantize(model->checkpoint(), options.out, settings); });
  progress.clear();
  write_err(
      fmt::format("{} tokens of calibration, run {} times\n", text.ids.size(), hessians.runs()));
  return report;
}

}  // namespace

int quantize(const QuantizeOptions& options) {
  std::optional<quantize::Importance> importance;
  if (options.importance) importance = quantize::Importance::read(*options.importance);
  ProgressBar progress;
  quantize::Options settings{
      .recipe = quantize::recipe_by_name(options.format),
      .rules = {},
      .importance = importance ? &*importance : nullptr,
      .threads = options.threads ? options.threads : base::allowed_cpu_count(),
      .progress = progress.callback()};
  for (const std::string& rule : options.rules)
    settings.rules.push_back(quantize::parse_rule(rule));

  quantize::Report report;
  if (options.gptq)
    report = with_gptq(options, settings, progress);
  else
    report = runtime::with_path(options.in, [&] {
      return quantize::quantize(*weights::open_checkpoint(options.in), options.out, settings);
    });
  progress.clear();
  for (const quantize::Note& note : report.notes) write_err(to_line(note));
  if (report.resumed > 0)
    write_err(fmt::format("{} of {} tensors were there from an earlier attempt\n", report.resumed,
                          report.tensors));
  std::string formats;
  for (const auto& [format, bytes] : report.bytes)
    formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", format_bytes(bytes),
                           weights::traits(format).name);
  write_err(fmt::format("{}: {} tensors, {} from {} ({})\n", options.out.string(), report.tensors,
                        format_bytes(report.bytes_out), format_bytes(report.bytes_in), formats));
  return kDone;
}

}  // namespace lemma::cli
