// SPDX-License-Identifier: Apache-2.0
// `lemma check`: a backend beside the reference, site by site.
#include "eval/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/eval_run_options.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/tokens_file.hpp"

namespace lemma::cli {
namespace {

/// Some everyday words, figures, punctuation and letters beyond ASCII.
constexpr std::string_view kText =
    "The ferry left at 7:45, a little late, with forty-two people and one very small dog on board. "
    "\"Is it far?\" asked the girl in the red coat. Her uncle, who had made the trip every summer "
    "since 1998, shook his head and pointed at the lighthouse. Caf\xc3\xa9 au lait cost 3.20; the "
    "wind was free.";

std::vector<TokenId> tokens_to_check(const CheckOptions& options,
                                     const runtime::LoadedModel& model) {
  if (options.tokens) return eval::parse_tokens(read_file(*options.tokens), *options.tokens);
  std::vector<TokenId> ids = model.tokenizer()->encode(options.text ? *options.text : kText);
  if (options.most_tokens && ids.size() < *options.most_tokens && options.text)
    throw Error(ErrorKind::kUsage, fmt::format("--tokens {}: the text has {} tokens",
                                               *options.most_tokens, ids.size()));
  // The built-in text comes again and again until there is enough of it.
  while (options.most_tokens && ids.size() < *options.most_tokens) {
    const std::vector<TokenId> more = model.tokenizer()->encode(kText);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  if (options.most_tokens) ids.resize(*options.most_tokens);
  // The built-in text is as good cut short; a text or a number that was asked for must fit.
  if (!options.text && !options.most_tokens && ids.size() > model.context())
    ids.resize(model.context());
  if (ids.empty()) throw Error(ErrorKind::kUsage, "the text has no tokens");
  return ids;
}

/// JSON has no infinity; null stands for it.
nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

nlohmann::ordered_json site_json(const eval::SiteReport& report) {
  const auto& site = report.site;
  const eval::RowDistance& distance = report.distance;
  nlohmann::ordered_json json;
  json["site"] = site.name;
  json["kind"] = site.kind;
  json["layer"] =
      site.layer ? nlohmann::ordered_json(*site.layer) : nlohmann::ordered_json(nullptr);
  json["operation"] = site.operation;
  json["max_error"] = number(distance.max_error());
  json["rms_error"] = number(distance.rms_error());
  json["of_tolerance"] = number(report.of_tolerance());
  json["worst_position"] = distance.worst_position();
  json["rms_limit"] =
      site.rms_limit ? nlohmann::ordered_json(*site.rms_limit) : nlohmann::ordered_json(nullptr);
  json["tolerance"] = {{"relative", distance.tolerance().relative},
                       {"absolute_of_max", distance.tolerance().absolute_of_max}};
  return json;
}

std::string to_json(const eval::CheckReport& report, std::size_t tokens, bool teacher_forced) {
  nlohmann::ordered_json json;
  json["passed"] = !report.first_failed.has_value();
  json["first_failed"] = report.first_failed
                             ? nlohmann::ordered_json(report.sites[*report.first_failed].site.name)
                             : nlohmann::ordered_json(nullptr);
  json["tokens"] = tokens;
  json["teacher_forced"] = teacher_forced;
  json["most_held_bytes"] = report.most_held;
  if (report.logits.positions() > 0)
    json["logits"] = {{"same_best", report.logits.same_best()},
                      {"positions", report.logits.positions()},
                      {"mean_kl", number(report.logits.mean_kl())},
                      {"max_kl", number(report.logits.max_kl())}};
  for (const eval::SiteReport& site : report.sites) json["sites"].push_back(site_json(site));
  return json.dump(2) + "\n";
}

std::string line(std::string_view name, std::string_view layer, const eval::SiteReport& site) {
  return fmt::format("{:<28} {:>6} {:>11.2e} {:>11.2e} {:>10.3f}\n", name, layer,
                     site.distance.max_error(), site.distance.rms_error(), site.of_tolerance());
}

/// One line for each kind of site: its worst layer, or the first that is past its tolerance. The
/// worst kinds come first.
std::string worst_lines(const eval::CheckReport& report) {
  std::map<std::string, std::size_t> places;
  std::vector<const eval::SiteReport*> worst;
  for (const eval::SiteReport& site : report.sites) {
    const auto [found, added] = places.emplace(site.site.kind, worst.size());
    if (added) worst.push_back(&site);
    const eval::SiteReport*& known = worst[found->second];
    if (known->passed() && !(site.of_tolerance() <= known->of_tolerance())) known = &site;
  }
  const auto rank = [](const eval::SiteReport* site) {  // a NaN is the worst there is
    return std::isnan(site->of_tolerance()) ? HUGE_VAL : site->of_tolerance();
  };
  std::stable_sort(worst.begin(), worst.end(),
                   [&](const auto* a, const auto* b) { return rank(a) > rank(b); });
  std::string text;
  for (const eval::SiteReport* site : worst)
    text +=
        line(site->site.kind, site->site.layer ? std::to_string(*site->site.layer) : "-", *site);
  return text;
}

std::string to_text(const eval::CheckReport& report, const CheckOptions& options,
                    const runtime::LoadedModel& model, std::size_t tokens) {
  std::string text = fmt::format(
      "{} tokens through '{}' against the reference, {}\n\n{:<28} {:>6} {:>11} {:>11} {:>10}\n",
      tokens, model.backend().description(),
      options.teacher_forced ? "each site fed the reference's rows" : "each on its own rows",
      "site", options.sites ? "" : "worst", "max error", "rms error", "tolerance");
  if (options.sites) {
    for (const eval::SiteReport& site : report.sites) text += line(site.site.name, "", site);
  } else {
    text += worst_lines(report);
  }
  const eval::LogitsDistance& logits = report.logits;
  text += fmt::format(
      "\nmax error: of a row's largest value; tolerance: share of it that is used up{}\n",
      report.sites.back().site.rms_limit ? " by the rms error" : "");
  if (logits.positions() > 0)
    text += fmt::format(
        "logits: KL mean {:.2e}, max {:.2e} nats; same best token at {} of {} positions\n",
        logits.mean_kl(), logits.max_kl(), logits.same_best(), logits.positions());
  if (report.first_failed) {
    const eval::SiteReport& first = report.sites[*report.first_failed];
    text += fmt::format("FAILED: first past its tolerance: {} ({}), {:.2f} times, at position {}\n",
                        first.site.name, first.site.operation, first.of_tolerance(),
                        first.distance.worst_position());
  } else {
    text += "passed: every site is within its tolerance\n";
  }
  return text;
}

}  // namespace

int check(const CheckOptions& options) {
  ProgressBar progress;
  const eval::ModelRunOptions machine = model_run_options(options.model, progress.callback());
  eval::ModelRunOptions plain = machine;
  plain.backend = BackendKind::kReference;
  plain.threads = 0;
  eval::ModelRun reference(plain), backend(machine);
  const std::vector<TokenId> tokens = tokens_to_check(options, backend.model());
  const bool int8 = options.model.backend != BackendKind::kReference &&
                    options.model.numerics == NumericsMode::kFast;
  eval::CheckOptions how{.teacher_forced = options.teacher_forced,
                         .int8 = int8,
                         .kv = options.model.kv,
                         .generated_from = options.generated_from,
                         .progress = progress.callback()};
  if (!how.generated_from && !backend.model().program().whole_prompts)
    how.generated_from = static_cast<std::uint32_t>(tokens.size() - tokens.size() / 4);
  if (options.layers) how.layers = eval::LayerRange{options.layers->first, options.layers->second};
  const eval::CheckReport report = eval::check(reference, backend, tokens, how);
  progress.clear();
  write_out(options.json ? to_json(report, tokens.size(), options.teacher_forced)
                         : to_text(report, options, backend.model(), tokens.size()));
  return report.first_failed ? kFailed : kDone;
}

}  // namespace lemma::cli
