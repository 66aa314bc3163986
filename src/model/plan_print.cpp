// SPDX-License-Identifier: Apache-2.0
#include "model/plan_print.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/overloaded.hpp"
#include "model/plan_words.hpp"
#include "weights/gguf/types.hpp"

namespace lemma::model {
namespace print {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RouteScore;

const char* word(NormKind kind) noexcept {
  return kind == NormKind::kRms ? "rms" : "layer";
}

const char* word(QkNorm::Extent extent) noexcept {
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

const char* word(Activation activation) noexcept {
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

const char* word(RouteScore score) noexcept {
  switch (score) {
    case RouteScore::kSoftmax:
      return "softmax";
    case RouteScore::kSoftmaxOverChosen:
      return "softmax_over_chosen";
    case RouteScore::kSigmoid:
      return "sigmoid";
    case RouteScore::kSqrtSoftplus:
      return "sqrt_softplus";
  }
  return "?";
}

const char* word(View::Kind kind) noexcept {
  switch (kind) {
    case View::Kind::kWhole:
      return "whole";
    case View::Kind::kRows:
      return "rows";
    case View::Kind::kStridedRows:
      return "strided_rows";
    case View::Kind::kColumns:
      return "columns";
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

const char* word(DraftBlock::Reads reads) noexcept {
  return reads == DraftBlock::Reads::kHidden ? "hidden" : "stream";
}

}  // namespace print

namespace {

using algorithm::RopeLayout;
using algorithm::RopePlacement;
using algorithm::RopeSpec;
using base::Overloaded;
using print::word;

// All that layer `index` is, but for its number: equal for equal layers.
std::string signature(const Layer& layer, std::size_t index) {
  std::string out = print::layer_json(layer);
  const std::string number = fmt::format("\"blk.{}.", index);
  for (std::size_t at = 0; (at = out.find(number, at)) != std::string::npos;)
    out.replace(at, number.size(), "\"blk.*.");
  const std::string row = fmt::format("\"index\":{},", index);  // of a per-layer input
  if (const std::size_t at = out.find(row); at != std::string::npos) out.erase(at, row.size());
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

std::string text(const std::optional<RopeSpec>& rope, std::uint32_t head_dim) {
  return rope ? text(*rope, head_dim) : "no rope";
}

std::string temperature(float scale, std::uint32_t floor) {
  return scale == 0.f ? "" : fmt::format(", temperature {} per {} positions", scale, floor);
}

std::string text(const Gqa& gqa) {
  const algorithm::GqaSpec& spec = gqa.spec;
  std::string out = fmt::format("attention {} heads on {} KV heads of {}", spec.query_heads,
                                spec.kv_heads, spec.head_dim);
  if (spec.value_dim != spec.head_dim) out += fmt::format(" (values {})", spec.value_dim);
  out += fmt::format(", scale {:.6g}", spec.scale);
  out += spec.window ? fmt::format(", window {}", spec.window) : ", full";
  if (!spec.causal) out += ", in both directions";
  if (spec.softcap != 0.f) out += fmt::format(", soft-cap {}", spec.softcap);
  if (spec.sinks) out += ", sinks";
  if (spec.alibi_max_bias != 0.f) out += fmt::format(", alibi {}", spec.alibi_max_bias);
  out += temperature(spec.temperature_scale, spec.temperature_floor);
  if (gqa.clamp != 0.f) out += fmt::format(", q/k/v clamped to {}", gqa.clamp);
  if (gqa.query.bias) out += ", q bias";
  if (gqa.key.bias) out += ", k bias";
  if (gqa.value.bias) out += ", v bias";
  if (gqa.output.bias) out += ", output bias";
  if (gqa.gate) out += ", gated";
  if (gqa.source) out += fmt::format(", on keys and values of layer {}", *gqa.source);
  if (!gqa.source && !gqa.value) out += ", values are the raw keys";
  if (gqa.value_norm) out += "\n      values " + text(*gqa.value_norm);
  if (gqa.qk_norm)
    out += fmt::format("\n      q/k {}, {}", text(gqa.qk_norm->query), word(gqa.qk_norm->extent));
  out += "\n      " + text(gqa.rope, spec.head_dim);
  if (!gqa.indexer) return out;
  const algorithm::MsaSpec& indexer = gqa.indexer->spec;
  return out + fmt::format("\n      each KV head chooses {} blocks of {} keys by heads of {}",
                           indexer.top_k, indexer.block_size, indexer.index_dim);
}

std::string text(const Mla& mla) {
  const algorithm::MlaSpec& spec = mla.spec;
  std::string out =
      fmt::format("latent attention {} heads of {} + {} (values {}), latent {}", spec.heads,
                  spec.nope_dim, spec.rope_dim, spec.value_dim, spec.latent_rank);
  if (spec.q_rank > 0) out += fmt::format(", query latent {}", spec.q_rank);
  out += fmt::format(", scale {:.6g}", spec.scale);
  out += temperature(spec.temperature_scale, spec.temperature_floor);
  if (mla.gate) out += mla.gate_per_head ? ", gated by head" : ", gated";
  if (mla.selection_source)
    out += fmt::format(", over the tokens that layer {} chose", *mla.selection_source);
  out += "\n      " + text(mla.rope, spec.rope_dim);
  if (!mla.indexer) return out;
  const TokenIndexer& indexer = *mla.indexer;
  out += fmt::format("\n      chooses {} tokens by {} heads of {}", indexer.spec.top_k,
                     indexer.spec.heads, indexer.spec.dim);
  if (indexer.kpool > 0)
    out += fmt::format(", pools of {}{}", indexer.kpool,
                       indexer.always_select_tail ? " and the tail" : "");
  return out + "\n      " + text(indexer.rope, indexer.spec.dim);
}

std::string text(const CompressedSparse& sparse) {
  const algorithm::CompressedSparseSpec& spec = sparse.spec;
  std::string out = fmt::format(
      "compressed sparse attention {} heads of {} on one row, query latent {}, "
      "scale {:.6g}, window {}",
      spec.heads, spec.head_dim, spec.q_rank, spec.scale, spec.window);
  if (spec.sinks) out += ", sinks";
  out += fmt::format(", output in {} groups of {}", spec.output_groups, spec.output_rank);
  if (spec.ratio > 0)
    out += fmt::format("\n      an entry for {} tokens{}", spec.ratio,
                       spec.overlap ? " and the ones before them" : "");
  if (spec.selection == algorithm::EntrySelection::kIndexer)
    out += fmt::format(", {} chosen by {} heads of {}", spec.indexer.top_k, spec.indexer.heads,
                       spec.indexer.dim);
  return out + "\n      " + text(spec.rope, spec.head_dim);
}

std::string text(const GatedDeltaNet& net) {
  const algorithm::GatedDeltaNetSpec& spec = net.spec;
  return fmt::format(
      "gated delta net {} value heads of {} on {} key heads of {} ({}), convolution {}",
      spec.value_heads, spec.value_dim, spec.key_heads, spec.key_dim,
      spec.mapping == algorithm::KeyHeads::kTiled ? "tiled" : "grouped", spec.kernel);
}

std::string text(const Kda& kda) {
  std::string out = fmt::format("delta attention (KDA) {} heads of {}, convolution {}",
                                kda.spec.heads, kda.spec.dim, kda.spec.kernel);
  if (kda.spec.lower_bound != 0.f) out += fmt::format(", log decay above {}", kda.spec.lower_bound);
  return out;
}

std::string text(const algorithm::MlpSpec& spec) {
  const algorithm::ActivationSpec& activation = spec.activation;
  std::string out = fmt::format("{} -> {}, {}, {}", spec.width, spec.hidden, word(activation.kind),
                                spec.gated ? "gated" : "ungated");
  if (activation.limit != 0.f)
    out += fmt::format(", limit {}{}", activation.limit,
                       activation.limit_after ? " after the activation" : "");
  return out;
}

std::string text(const DenseMlp& mlp) {
  return "feed-forward " + text(mlp.spec) + (mlp.up.bias || mlp.down.bias ? ", biases" : "");
}

std::string text(const algorithm::RoutingSpec& spec) {
  if (spec.hashed)
    return fmt::format("{} of {} experts by token id, weights {}", spec.chosen, spec.experts,
                       word(spec.score));
  std::string out =
      fmt::format("{} of {} experts, {}", spec.chosen, spec.experts, word(spec.score));
  if (spec.correction) out += " with a bias for the choice";
  if (spec.groups > 1)
    out += fmt::format(", of the best {} of {} groups", spec.kept_groups, spec.groups);
  return out;
}

std::string text(const Moe& moe) {
  const algorithm::RoutingSpec& routing = moe.routing;
  std::string out = text(routing);
  out += routing.normalize ? ", weights sum to 1" : ", weights as they are";
  if (routing.scale != 1.f) out += fmt::format(", times {}", routing.scale);
  if (routing.scale_per_expert) out += ", times a factor per expert";
  if (moe.weigh_inputs) out += ", inputs are weighed";
  if (moe.router_norm) out += "\n      router reads the stream under " + text(*moe.router_norm);
  if (moe.router_scale != 1.f) out += fmt::format(", times {:.6g}", moe.router_scale);
  out += "\n      each " + text(moe.expert);
  if (moe.up.bias || moe.down.bias) out += ", biases";
  if (moe.latent_down) out += ", in a latent space";
  if (!moe.shared) return out;
  return out + "\n      shared " + text(moe.shared->spec) + (moe.shared_gate ? ", weighed" : "");
}

std::string text(const FfnSum& sum) {
  std::string out = "the sum of";
  for (const FfnSum::Part& part : sum.parts) {
    if (part.norm) out += "\n      " + text(*part.norm);
    out += "\n      " + std::visit([](const auto& mixer) { return text(mixer); }, part.mixer);
    if (part.branch_norm) out += "\n      its branch: " + text(*part.branch_norm);
  }
  return out;
}

std::string text(const PerLayerInput& input) {
  return fmt::format("the token's own row of {} for this layer, gated by {}", input.width,
                     word(input.activation.kind));
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

std::string text(const Residual& residual) {
  if (const auto* hyper = std::get_if<HyperConnections>(&residual))
    return fmt::format("  hyper-connections: {} streams, {} Sinkhorn iterations\n",
                       hyper->spec.streams, hyper->spec.iterations);
  if (const auto* blocks = std::get_if<AttentionResidual>(&residual))
    return fmt::format("  attention residual: blocks of {} layers\n", blocks->spec.block_size);
  return "";
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

std::string text(const Plan& plan, const DraftBlock& draft) {
  const char* reads = "the row that enters the head";
  if (draft.reads == DraftBlock::Reads::kStream)
    reads = std::holds_alternative<HyperConnections>(plan.residual) ? "the last layer's streams"
                                                                    : "the last layer's stream";
  std::string out = fmt::format("    the token{}: {}\n    {}: {}\n",
                                draft.table == plan.embedding.table ? "" : ", own embedding",
                                text(draft.token_norm), reads, text(draft.row_norm));
  out += text(draft.layer);
  out += "    final " + text(draft.final_norm) + "\n";
  const bool shared = draft.output.weight == plan.head.output.weight;
  return out + (shared ? "    the model's head\n" : "    a head of its own\n");
}

std::string text_of_head(const Plan& plan) {
  if (!plan.head.output) return "  ends in hidden states\n";
  std::string out =
      plan.head.output.weight == plan.embedding.table ? "  head tied to the embedding" : "  head";
  if (plan.head.output.bias) out += ", bias";
  if (plan.head.scale != 1.f) out += fmt::format(", logits times {}", plan.head.scale);
  if (plan.head.softcap != 0.f) out += fmt::format(", soft-cap {}", plan.head.softcap);
  return out + "\n";
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string out =
      fmt::format("{}{}{}: width {}, vocabulary {}, context {}, {} layers\n", plan.architecture,
                  plan.name.empty() ? "" : ", ", weights::gguf::printable(plan.name), plan.width,
                  plan.vocabulary, plan.context, plan.layers.size());
  out += "  embedding";
  if (plan.embedding.scale != 1.f) out += fmt::format(" times {}", plan.embedding.scale);
  if (plan.embedding.positions)
    out += fmt::format(", learned positions for {}", plan.embedding.position_rows);
  if (plan.embedding.token_type) out += ", first token type";
  if (plan.embedding.norm) out += ", " + text(*plan.embedding.norm);
  if (plan.embedding.per_layer)
    out += fmt::format(", a row of {} for each layer", plan.embedding.per_layer->width);
  out += "\n" + text(plan.residual);

  out += text_of_layers(plan.layers);
  if (plan.final_norm) out += "  final " + text(*plan.final_norm) + "\n";
  out += text_of_head(plan);
  for (std::size_t i = 0; i < plan.drafts.size(); ++i)
    out += fmt::format("  draft block {}:\n{}", i, text(plan, plan.drafts[i]));
  return out;
}

}  // namespace lemma::model
