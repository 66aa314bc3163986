// SPDX-License-Identifier: Apache-2.0
// An explanation for programs.
#include <nlohmann/json.hpp>

#include "base/utf8.hpp"
#include "cli/explain_views.hpp"

namespace lemma::cli {
namespace {

using Json = nlohmann::ordered_json;

Json norms_json(const eval::RowNorms& norms) {
  return {{"site", norms.site}, {"mean", norms.mean}, {"last", norms.last}};
}

Json read_json(const eval::AttentionView::Read& read) {
  return {{"position", read.position}, {"weight", read.weight}};
}

Json attention_json(const eval::AttentionView& view) {
  Json json{{"site", view.site}, {"heads", view.heads}};
  if (!view.hidden.empty()) json["reads"] = view.hidden;
  if (view.chosen) json["selected"] = *view.chosen;
  json["last_token"] = Json::array();
  for (const auto& read : view.most) json["last_token"].push_back(read_json(read));
  json["heads_heaviest"] = Json::array();
  for (const auto& read : view.head_most) json["heads_heaviest"].push_back(read_json(read));
  json["mean_weights"] = view.mean;
  return json;
}

Json layer_json(const eval::LayerView& layer) {
  Json json{{"layer", layer.layer}, {"mixers", layer.mixers}};
  json["branches"] = Json::array();
  for (const eval::RowNorms& norms : layer.branches) json["branches"].push_back(norms_json(norms));
  json["stream"] = layer.stream ? norms_json(*layer.stream) : Json();
  json["attention"] = Json::array();
  for (const eval::AttentionView& view : layer.attention)
    json["attention"].push_back(attention_json(view));
  json["experts"] = Json::array();
  for (const eval::ExpertView& view : layer.experts)
    json["experts"].push_back({{"site", view.site},
                               {"experts", view.experts},
                               {"chosen", view.chosen},
                               {"use", view.use},
                               {"last_token", view.ids},
                               {"last_token_weights", view.weights}});
  return json;
}

Json choice_json(const eval::Choice& choice) {
  Json json{{"position", choice.position},
            {"id", choice.id},
            {"piece", choice.piece},
            {"probability", choice.probability},
            {"ends", choice.ends}};
  for (const eval::SamplingStage& stage : choice.stages) {
    Json best = Json::array();
    for (const auto& candidate : stage.best)
      best.push_back({{"id", candidate.id},
                      {"piece", candidate.piece},
                      {"logit", candidate.logit},
                      {"probability", candidate.probability}});
    json["stages"].push_back({{"stage", stage.name}, {"left", stage.kept}, {"best", best}});
  }
  return json;
}

Json step_json(const eval::StepView& step) {
  return {{"phase", step.prefill ? "prefill" : "decode"},
          {"tokens", step.rows},
          {"length", step.length},
          {"milliseconds", step.milliseconds},
          {"state_formula_bytes", step.formula_bytes},
          {"state_held_bytes", step.held_bytes}};
}

}  // namespace

std::string explanation_json(const eval::Explanation& e) {
  Json json;
  json["architecture"] = base::repair_utf8(e.info.architecture);
  json["name"] = base::repair_utf8(e.info.name);
  json["layers_count"] = e.info.layers;
  json["width"] = e.info.width;
  json["vocabulary"] = e.info.vocabulary;
  json["parameters"] = e.info.parameters;
  json["backend"] = base::repair_utf8(e.info.backend);
  json["sites"] = e.sites;
  json["seed"] = e.seed ? Json(*e.seed) : Json();
  json["prompt_tokens"] = e.prompt_tokens;
  for (const eval::ExplainedToken& token : e.tokens)
    json["tokens"].push_back({{"id", token.id},
                              {"piece", token.piece},
                              {"kind", token.kind},
                              {"class", token.generated ? "generated" : "entered"}});
  for (const eval::Stage& stage : e.stages)
    json["shapes"].push_back({{"layers", layers_of(stage)},
                              {"operation", stage.operation},
                              {"site", stage.site},
                              {"shape", stage.shape}});
  for (const eval::LayerView& layer : e.layers) json["layers"].push_back(layer_json(layer));
  json["choices"] = Json::array();
  for (const eval::Choice& choice : e.choices) json["choices"].push_back(choice_json(choice));
  json["state"] = {{"format", e.state_format}, {"formula", e.state_formula}};
  for (const eval::StepView& step : e.steps) json["steps"].push_back(step_json(step));
  return json.dump(2) + "\n";
}

}  // namespace lemma::cli
