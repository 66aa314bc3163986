// SPDX-License-Identifier: Apache-2.0
#include "model/plan_print.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weights/gguf/types.hpp"

namespace lemma::model {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;
using algorithm::RopePlacement;
using algorithm::RopeSpec;
using Json = nlohmann::ordered_json;  // members keep the order in which they are written here

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

const char* word(NormKind kind) {
  return kind == NormKind::kRms ? "rms" : "layer";
}

const char* word(QkNorm::Extent extent) {
  switch (extent) {
    case QkNorm::Extent::kPerHead:
      return "per_head";
    case QkNorm::Extent::kPerHeadOwn:
      return "per_head_own";
    case QkNorm::Extent::kWholeRow:
      return "whole_row";
  }
  return "?";
}

const char* word(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kGeluErf:
      return "gelu_erf";
    case Activation::kRelu:
      return "relu";
    case Activation::kReluSquared:
      return "relu_squared";
    case Activation::kSwigluOai:
      return "swiglu_oai";
    case Activation::kSitu:
      return "situ";
  }
  return "?";
}

const char* word(View::Kind kind) {
  switch (kind) {
    case View::Kind::kWhole:
      return "whole";
    case View::Kind::kRows:
      return "rows";
    case View::Kind::kStridedRows:
      return "strided_rows";
    case View::Kind::kElements:
      return "elements";
    case View::Kind::kTranspose:
      return "transpose";
    case View::Kind::kAddOne:
      return "add_one";
    case View::Kind::kNegExp:
      return "neg_exp";
  }
  return "?";
}

// A float as the shortest decimal that reads back as the same f32: 0.1, not 0.10000000149011612.
Json number(float value) {
  return std::isfinite(value) ? Json::parse(fmt::format("{}", value)) : Json(nullptr);
}

Json json(const WeightRef& weight) {
  if (!weight) return nullptr;
  Json out{{"tensor", weight.tensor}, {"view", word(weight.view.kind)}};
  if (weight.view.begin != 0 || weight.view.end != 0) {
    out["begin"] = weight.view.begin;
    out["end"] = weight.view.end;
  }
  if (weight.view.stride != 0) out["stride"] = weight.view.stride;
  return out;
}

Json json(const Linear& linear) {
  if (!linear) return nullptr;
  return {{"weight", json(linear.weight)}, {"bias", json(linear.bias)}};
}

Json json(const Norm& norm) {
  return {{"kind", word(norm.spec.kind)},
          {"eps", number(norm.spec.eps)},
          {"weight", json(norm.weight)},
          {"bias", json(norm.bias)}};
}

Json json(const std::optional<Norm>& norm) {
  return norm ? json(*norm) : Json(nullptr);
}

Json json(const algorithm::RopeScaling& scaling) {
  return std::visit(Overloaded{
                        [](std::monostate) { return Json(nullptr); },
                        [](const algorithm::LinearScaling& s) {
                          return Json{{"kind", "linear"}, {"factor", number(s.factor)}};
                        },
                        [](const algorithm::ProportionalScaling& s) {
                          return Json{{"kind", "proportional"},
                                      {"active_fraction", number(s.active_fraction)},
                                      {"factor", number(s.factor)}};
                        },
                        [](const algorithm::YarnScaling& s) {
                          return Json{{"kind", "yarn"},
                                      {"factor", number(s.factor)},
                                      {"original_context", number(s.original_context)},
                                      {"beta_fast", number(s.beta_fast)},
                                      {"beta_slow", number(s.beta_slow)},
                                      {"truncate", s.truncate}};
                        },
                        [](const algorithm::Llama3Scaling& s) {
                          return Json{{"kind", "llama3"},
                                      {"factor", number(s.factor)},
                                      {"low_freq_factor", number(s.low_freq_factor)},
                                      {"high_freq_factor", number(s.high_freq_factor)},
                                      {"original_context", number(s.original_context)}};
                        },
                        [](const algorithm::FactorScaling& s) {
                          Json factors = Json::array();
                          for (const float factor : s.factors) factors.push_back(number(factor));
                          return Json{{"kind", "factors"}, {"factors", std::move(factors)}};
                        },
                    },
                    scaling);
}

Json json(const RopeSpec& rope) {
  return {{"rotary_dim", rope.rotary_dim},
          {"theta", number(rope.theta)},
          {"layout", rope.layout == RopeLayout::kSplitHalf ? "split_half" : "interleaved"},
          {"placement", rope.placement == RopePlacement::kPrefix ? "prefix" : "suffix"},
          {"attention_factor", number(rope.attention_factor)},
          {"scaling", json(rope.scaling)},
          {"sections", rope.sections},
          {"interleaved_sections", rope.interleaved_sections}};
}

Json json(const Gqa& gqa) {
  const algorithm::GqaSpec& spec = gqa.spec;
  Json out{{"kind", "gqa"},
           {"query_heads", spec.query_heads},
           {"kv_heads", spec.kv_heads},
           {"head_dim", spec.head_dim},
           {"value_dim", spec.value_dim},
           {"scale", number(spec.scale)},
           {"window", spec.window},
           {"softcap", number(spec.softcap)},
           {"alibi_max_bias", number(spec.alibi_max_bias)},
           {"temperature_scale", number(spec.temperature_scale)},
           {"temperature_floor", spec.temperature_floor},
           {"clamp", number(gqa.clamp)},
           {"query", json(gqa.query)},
           {"key", json(gqa.key)},
           {"value", json(gqa.value)},
           {"output", json(gqa.output)},
           {"sinks", json(gqa.sinks)}};
  out["qk_norm"] = gqa.qk_norm ? Json{{"extent", word(gqa.qk_norm->extent)},
                                      {"query", json(gqa.qk_norm->query)},
                                      {"key", json(gqa.qk_norm->key)}}
                               : Json(nullptr);
  out["rope"] = gqa.rope ? json(*gqa.rope) : Json(nullptr);
  return out;
}

Json json(const DenseMlp& mlp) {
  const algorithm::ActivationSpec& activation = mlp.spec.activation;
  return {{"kind", "dense_mlp"},
          {"width", mlp.spec.width},
          {"hidden", mlp.spec.hidden},
          {"gated", mlp.spec.gated},
          {"activation",
           {{"kind", word(activation.kind)},
            {"limit", number(activation.limit)},
            {"alpha", number(activation.alpha)},
            {"beta", number(activation.beta)},
            {"linear_beta", number(activation.linear_beta)}}},
          {"gate", json(mlp.gate)},
          {"up", json(mlp.up)},
          {"down", json(mlp.down)}};
}

template <typename Other>
Json json(const Other& mixer) {
  return {{"kind", mixer_name(Mixer(mixer))}};
}

Json json(const Site& site) {
  return {{"norm", json(site.norm)},
          {"shares_norm", site.shares_norm},
          {"mixer", std::visit([](const auto& mixer) { return json(mixer); }, site.mixer)},
          {"branch_norm", json(site.branch_norm)},
          {"scale", number(site.scale)},
          {"sum_norm", json(site.sum_norm)}};
}

Json json(const Layer& layer) {
  Json sites = Json::array();
  for (const Site& site : layer.sites) sites.push_back(json(site));
  return {{"side_by_side", layer.side_by_side},
          {"scale", number(layer.scale)},
          {"sites", std::move(sites)}};
}

// All that layer `index` is, but for its number in the tensors' names: equal for equal layers.
std::string signature(const Layer& layer, std::size_t index) {
  std::string out = json(layer).dump();
  const std::string number = fmt::format("\"blk.{}.", index);
  for (std::size_t at = 0; (at = out.find(number, at)) != std::string::npos;)
    out.replace(at, number.size(), "\"blk.*.");
  return out;
}

std::string text(const Norm& norm) {
  return fmt::format("{} norm (eps {}){}", word(norm.spec.kind), norm.spec.eps,
                     norm.bias ? " with bias" : "");
}

std::string text(const algorithm::RopeScaling& scaling) {
  return std::visit(
      Overloaded{
          [](std::monostate) { return std::string(); },
          [](const algorithm::LinearScaling& s) { return fmt::format(", linear / {}", s.factor); },
          [](const algorithm::ProportionalScaling& s) {
            return fmt::format(", proportional {} / {}", s.active_fraction, s.factor);
          },
          [](const algorithm::YarnScaling& s) {
            return fmt::format(", yarn x {} from {} (beta {} to {})", s.factor, s.original_context,
                               s.beta_fast, s.beta_slow);
          },
          [](const algorithm::Llama3Scaling& s) {
            return fmt::format(", llama3 x {} from {} (low {}, high {})", s.factor,
                               s.original_context, s.low_freq_factor, s.high_freq_factor);
          },
          [](const algorithm::FactorScaling& s) {
            return fmt::format(", {} listed factors", s.factors.size());
          },
      },
      scaling);
}

std::string text(const RopeSpec& rope, std::uint32_t head_dim) {
  std::string out =
      fmt::format("rope {}, base {}",
                  rope.layout == RopeLayout::kSplitHalf ? "split-half" : "interleaved", rope.theta);
  if (rope.rotary_dim != head_dim)
    out += fmt::format(", {} {} of {} dims",
                       rope.placement == RopePlacement::kPrefix ? "first" : "last", rope.rotary_dim,
                       head_dim);
  out += text(rope.scaling);
  if (rope.attention_factor != 1.f) out += fmt::format(", magnitude {}", rope.attention_factor);
  return out;
}

std::string text(const Gqa& gqa) {
  const algorithm::GqaSpec& spec = gqa.spec;
  std::string out = fmt::format("attention {} heads on {} KV heads of {}", spec.query_heads,
                                spec.kv_heads, spec.head_dim);
  if (spec.value_dim != spec.head_dim) out += fmt::format(" (values {})", spec.value_dim);
  out += fmt::format(", scale {:.6g}", spec.scale);
  out += spec.window ? fmt::format(", window {}", spec.window) : ", full";
  if (spec.softcap != 0.f) out += fmt::format(", soft-cap {}", spec.softcap);
  if (spec.sinks) out += ", sinks";
  if (spec.alibi_max_bias != 0.f) out += fmt::format(", alibi {}", spec.alibi_max_bias);
  if (spec.temperature_scale != 0.f)
    out += fmt::format(", temperature {} per {} positions", spec.temperature_scale,
                       spec.temperature_floor);
  if (gqa.clamp != 0.f) out += fmt::format(", q/k/v clamped to {}", gqa.clamp);
  if (gqa.query.bias) out += ", q bias";
  if (gqa.key.bias) out += ", k bias";
  if (gqa.value.bias) out += ", v bias";
  if (gqa.output.bias) out += ", output bias";
  if (gqa.qk_norm)
    out += fmt::format("\n      q/k {}, {}", text(gqa.qk_norm->query), word(gqa.qk_norm->extent));
  out += "\n      " + (gqa.rope ? text(*gqa.rope, spec.head_dim) : std::string("no rope"));
  return out;
}

std::string text(const DenseMlp& mlp) {
  const algorithm::ActivationSpec& activation = mlp.spec.activation;
  std::string out = fmt::format("feed-forward {} -> {}, {}, {}", mlp.spec.width, mlp.spec.hidden,
                                word(activation.kind), mlp.spec.gated ? "gated" : "ungated");
  if (activation.limit != 0.f) out += fmt::format(", limit {}", activation.limit);
  if (mlp.up.bias || mlp.down.bias) out += ", biases";
  return out;
}

template <typename Other>
std::string text(const Other& mixer) {
  return mixer_name(Mixer(mixer));
}

std::string text(const Layer& layer) {
  std::string out;
  if (layer.side_by_side) out += "    side by side:\n";
  for (const Site& site : layer.sites) {
    if (site.norm) out += "    " + text(*site.norm) + "\n";
    if (site.shares_norm) out += "    (the same normed stream)\n";
    out += "    " + std::visit([](const auto& mixer) { return text(mixer); }, site.mixer) + "\n";
    if (site.branch_norm) out += "    branch: " + text(*site.branch_norm) + "\n";
    if (site.scale != 1.f) out += fmt::format("    branch times {}\n", site.scale);
    if (site.sum_norm) out += "    sum: " + text(*site.sum_norm) + "\n";
  }
  if (layer.scale != 1.f) out += fmt::format("    stream times {}\n", layer.scale);
  return out;
}

// One entry for a run of equal layers. Where kinds alternate (windows, layers without rope) runs
// are short, so a layer like an earlier one refers to it.
std::string text_of_layers(const std::vector<Layer>& layers) {
  struct Seen {
    std::string signature, name;
  };
  std::vector<std::string> signatures;
  for (std::size_t i = 0; i < layers.size(); ++i) signatures.push_back(signature(layers[i], i));
  std::vector<Seen> seen;
  std::string out;
  for (std::size_t begin = 0, end = 0; begin < layers.size(); begin = end) {
    for (end = begin + 1; end < layers.size() && signatures[end] == signatures[begin];) ++end;
    const std::string name = end - begin == 1 ? fmt::format("layer {}", begin)
                                              : fmt::format("layers {}-{}", begin, end - 1);
    const auto like = std::find_if(seen.begin(), seen.end(), [&](const Seen& known) {
      return known.signature == signatures[begin];
    });
    if (like != seen.end()) {
      out += fmt::format("  {}: as {}\n", name, like->name);
    } else {
      out += fmt::format("  {}:\n{}", name, text(layers[begin]));
      seen.push_back({signatures[begin], name});
    }
  }
  return out;
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json layers = Json::array();
  for (const Layer& layer : plan.layers) layers.push_back(json(layer));
  const Json out{{"architecture", plan.architecture},
                 {"name", plan.name},
                 {"width", plan.width},
                 {"vocabulary", plan.vocabulary},
                 {"context", plan.context},
                 {"embedding",
                  {{"table", json(plan.embedding.table)},
                   {"positions", json(plan.embedding.positions)},
                   {"position_rows", plan.embedding.position_rows},
                   {"scale", number(plan.embedding.scale)},
                   {"norm", json(plan.embedding.norm)}}},
                 {"layers", std::move(layers)},
                 {"final_norm", json(plan.final_norm)},
                 {"head",
                  {{"output", json(plan.head.output)},
                   {"scale", number(plan.head.scale)},
                   {"softcap", number(plan.head.softcap)}}}};
  // A name from the file may not be UTF-8.
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string to_text(const Plan& plan) {
  std::string out =
      fmt::format("{}{}{}: width {}, vocabulary {}, context {}, {} layers\n", plan.architecture,
                  plan.name.empty() ? "" : ", ", weights::gguf::printable(plan.name), plan.width,
                  plan.vocabulary, plan.context, plan.layers.size());
  out += "  embedding";
  if (plan.embedding.scale != 1.f) out += fmt::format(" times {}", plan.embedding.scale);
  if (plan.embedding.positions)
    out += fmt::format(", learned positions for {}", plan.embedding.position_rows);
  if (plan.embedding.norm) out += ", " + text(*plan.embedding.norm);
  out += "\n";

  out += text_of_layers(plan.layers);
  if (plan.final_norm) out += "  final " + text(*plan.final_norm) + "\n";
  if (!plan.head.output) return out + "  ends in hidden states\n";
  out +=
      plan.head.output.weight == plan.embedding.table ? "  head tied to the embedding" : "  head";
  if (plan.head.output.bias) out += ", bias";
  if (plan.head.scale != 1.f) out += fmt::format(", logits times {}", plan.head.scale);
  if (plan.head.softcap != 0.f) out += fmt::format(", soft-cap {}", plan.head.softcap);
  return out + "\n";
}

}  // namespace lemma::model
