// SPDX-License-Identifier: Apache-2.0
// `lemma show`: what a model is, what it needs, and who runs it here.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/cpu_features.hpp"
#include "base/topology.hpp"
#include "base/utf8.hpp"
#include "cli/commands.hpp"
#include "cli/eval_run_options.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/model_run.hpp"
#include "model/plan_cost.hpp"
#include "model/plan_print.hpp"

namespace lemma::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A metadata value: itself where it is one, else how many there are of what.
Json value_json(const weights::Value& value) {
  return std::visit(
      [&](const auto& data) -> Json {
        using Data = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<Data, std::string>) {
          return base::repair_utf8(data);
        } else if constexpr (std::is_arithmetic_v<Data>) {
          return data;
        } else {
          return {{"type", std::string(value.type_name)}, {"count", data.size()}};
        }
      },
      value.data);
}

/// One line, short enough to read.
std::string value_text(const weights::Value& value) {
  constexpr std::size_t kLongest = 72;
  const Json json = value_json(value);
  if (json.is_object())
    return fmt::format("{}, {} entries", value.type_name, json["count"].get<std::size_t>());
  std::string text = json.dump();
  if (text.size() <= kLongest) return text;
  const std::size_t whole = base::valid_utf8_prefix(std::string_view(text).substr(0, kLongest));
  return fmt::format("{}... ({} bytes)", text.substr(0, whole), text.size() - 2);
}

/// Operations that are run alike, and how often.
struct PlacementGroup {
  std::string operation, implementation, format;
  std::size_t count = 0;
};

std::vector<PlacementGroup> group(const std::vector<backend::Placement>& placements) {
  std::vector<PlacementGroup> groups;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> index;
  for (const backend::Placement& p : placements) {
    const auto [found, added] =
        index.try_emplace({p.operation, p.implementation, p.format}, groups.size());
    if (added) groups.push_back({p.operation, p.implementation, p.format});
    ++groups[found->second].count;
  }
  return groups;
}

struct Facts {
  eval::ModelRun& run;
  model::Cost cost;
  algorithm::RowFormat state_format;
  std::string hardware;

  std::size_t state_allocated() const { return run.space().store().allocated_bytes(); }
  std::size_t scratch_allocated() const { return run.space().executable().scratch_bytes(); }
  std::vector<PlacementGroup> placements() const {
    return group(run.space().executable().placements());
  }
};

std::string to_json(const Facts& facts) {
  const runtime::LoadedModel& model = facts.run.model();
  const ModelInfo info = model.info();
  Json json;
  for (const auto& file : model.checkpoint().files()) json["files"].push_back(file.string());
  json["file_bytes"] = info.file_bytes;
  json["tensors"] = model.checkpoint().tensors().size();
  json["parameters"] = info.parameters;
  json["tokenizer"] = nullptr;
  if (const auto& tokenizer = model.tokenizer())
    json["tokenizer"] = {{"model", tokenizer->model_name()},
                         {"tokens", tokenizer->vocabulary_size()}};
  for (const auto& [key, value] : model.checkpoint().metadata().pairs())
    json["metadata"][base::repair_utf8(key)] = value_json(value);
  json["plan"] = Json::parse(model::to_json(model.plan()));
  const model::Cost& cost = facts.cost;
  for (const auto& share : cost.weights)
    json["weights"].push_back({{"format", weights::traits(share.format).name},
                               {"bytes", share.bytes},
                               {"parameters", share.parameters}});
  json["state"] = {
      {"context", cost.context},           {"format", algorithm::to_string(facts.state_format)},
      {"formula", cost.state_formula},     {"formula_bytes", cost.state_formula_bytes},
      {"planned_bytes", cost.state_bytes}, {"allocated_bytes", facts.state_allocated()}};
  json["scratch"] = {{"planned_bytes", cost.scratch_bytes},
                     {"allocated_bytes", facts.scratch_allocated()}};
  if (cost.draft_weight_bytes > 0)
    json["drafts"] = {{"weight_bytes", cost.draft_weight_bytes},
                      {"state_bytes", cost.draft_state_bytes}};
  json["packed_weight_bytes"] = model.backend().weight_bytes();
  for (const PlacementGroup& p : facts.placements())
    json["operations"].push_back({{"operation", p.operation},
                                  {"implementation", p.implementation},
                                  {"format", p.format},
                                  {"count", p.count}});
  json["backend"] = info.backend;
  json["hardware"] = facts.hardware;
  return json.dump(2) + "\n";
}

std::string metadata_text(const runtime::LoadedModel& model) {
  const ModelInfo info = model.info();
  std::string text;
  for (const auto& file : model.checkpoint().files())
    text += fmt::format("file      {}\n", file.string());
  text += fmt::format("model     {}{}{}, {} parameters, {} in files, {} tensors\n",
                      info.architecture, info.name.empty() ? "" : ", ", info.name, info.parameters,
                      format_bytes(info.file_bytes), model.checkpoint().tensors().size());
  if (const auto& tokenizer = model.tokenizer())
    text += fmt::format("tokenizer {}, {} tokens\n", tokenizer->model_name(),
                        tokenizer->vocabulary_size());
  else
    text += "tokenizer none was found: a text needs a tokenizer.json beside the weights\n";
  text += "\nmetadata\n";
  for (const auto& [key, value] : model.checkpoint().metadata().pairs())
    text += fmt::format("  {:<44} {}\n", base::repair_utf8(key), value_text(value));
  return text;
}

std::string memory_text(const Facts& facts) {
  const model::Cost& cost = facts.cost;
  std::string text = "\nmemory\n";
  for (const auto& share : cost.weights)
    text +=
        fmt::format("  weights {:<6} {:>12}  {} parameters\n", weights::traits(share.format).name,
                    format_bytes(share.bytes), share.parameters);
  text += fmt::format("  packed copies  {:>12}  held beside the mapped files\n",
                      format_bytes(facts.run.model().backend().weight_bytes()));
  text += fmt::format("  state          {:>12}  rows of {} positions in {}: {}\n",
                      format_bytes(cost.state_formula_bytes), cost.context,
                      algorithm::to_string(facts.state_format), cost.state_formula);
  text += fmt::format("  state          {:>12}  allocated: whole pages, and a step beyond\n",
                      format_bytes(facts.state_allocated()));
  text += fmt::format("  scratch        {:>12}  allocated; {} estimated from the plan\n",
                      format_bytes(facts.scratch_allocated()), format_bytes(cost.scratch_bytes));
  if (cost.draft_weight_bytes > 0)
    text +=
        fmt::format("  draft blocks   {:>12}  more in weights where they run, and {} of state\n",
                    format_bytes(cost.draft_weight_bytes), format_bytes(cost.draft_state_bytes));
  return text;
}

std::string to_text(const Facts& facts) {
  const runtime::LoadedModel& model = facts.run.model();
  std::string text = metadata_text(model);
  text += "\nplan\n" + model::to_text(model.plan());
  text += memory_text(facts);
  text += "\noperations\n";
  for (const PlacementGroup& p : facts.placements())
    text += fmt::format("  {:>5} x {:<8} {:<10} {}\n", p.count, p.operation, p.format,
                        p.implementation);
  text +=
      fmt::format("\nbackend   {}\nhardware  {}\n", model.backend().description(), facts.hardware);
  return text;
}

}  // namespace

int show(const ShowOptions& options) {
  constexpr std::uint32_t kStepRows = 512;
  ProgressBar progress;
  eval::ModelRunOptions settings = model_run_options(options.model, progress.callback());
  settings.draft_file = options.draft;
  settings.tokenizer_may_lack = true;
  eval::ModelRun run(settings);
  run.prepare({}, kStepRows, 1);
  const algorithm::RowFormat format = eval::row_format(options.model.kv);
  const Facts facts{run,
                    model::cost_of(run.model().plan(), run.model().checkpoint(),
                                   {.context = run.model().context(),
                                    .row_format = format,
                                    .step_rows = kStepRows,
                                    .logit_rows = 1}),
                    format,
                    fmt::format("{} processors allowed; {}", base::allowed_cpu_count(),
                                base::describe(base::cpu_features()))};
  progress.clear();
  write_out(options.json ? to_json(facts) : to_text(facts));
  return kDone;
}

}  // namespace lemma::cli
