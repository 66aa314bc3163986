// SPDX-License-Identifier: Apache-2.0
// Plans as JSON, one function for each word of plan.hpp, in its order.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/overloaded.hpp"
#include "model/plan_print.hpp"
#include "model/plan_words.hpp"

namespace lemma::model {
namespace {

using algorithm::RopeLayout;
using algorithm::RopePlacement;
using algorithm::RopeSpec;
using print::word;
using Json = nlohmann::ordered_json;  // members keep the order in which they are written here

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
  return std::visit(base::Overloaded{
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

Json json(const std::optional<RopeSpec>& rope) {
  return rope ? json(*rope) : Json(nullptr);
}

Json json(const algorithm::ActivationSpec& activation) {
  return {{"kind", word(activation.kind)},         {"limit", number(activation.limit)},
          {"limit_after", activation.limit_after}, {"alpha", number(activation.alpha)},
          {"beta", number(activation.beta)},       {"linear_beta", number(activation.linear_beta)}};
}

Json json(const BlockIndexer& indexer) {
  const algorithm::MsaSpec& spec = indexer.spec;
  return {{"heads", spec.index_heads},
          {"dim", spec.index_dim},
          {"block_size", spec.block_size},
          {"top_k", spec.top_k},
          {"init_blocks", spec.init_blocks},
          {"local_blocks", spec.local_blocks},
          {"query", json(indexer.query)},
          {"key", json(indexer.key)},
          {"query_norm", json(indexer.query_norm)},
          {"key_norm", json(indexer.key_norm)},
          {"rope", json(indexer.rope)}};
}

Json json(const std::optional<std::uint32_t>& layer) {
  return layer ? Json(*layer) : Json(nullptr);
}

Json json(const Gqa& gqa) {
  const algorithm::GqaSpec& spec = gqa.spec;
  Json out{{"kind", "gqa"},
           {"query_heads", spec.query_heads},
           {"kv_heads", spec.kv_heads},
           {"head_dim", spec.head_dim},
           {"value_dim", spec.value_dim},
           {"scale", number(spec.scale)},
           {"causal", spec.causal},
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
           {"gate", json(gqa.gate)},
           {"sinks", json(gqa.sinks)},
           {"source", json(gqa.source)}};
  out["qk_norm"] = gqa.qk_norm ? Json{{"extent", word(gqa.qk_norm->extent)},
                                      {"query", json(gqa.qk_norm->query)},
                                      {"key", json(gqa.qk_norm->key)}}
                               : Json(nullptr);
  out["value_norm"] = json(gqa.value_norm);
  out["rope"] = json(gqa.rope);
  out["indexer"] = gqa.indexer ? json(*gqa.indexer) : Json(nullptr);
  return out;
}

Json json(const algorithm::IndexerSpec& spec) {
  return {
      {"heads", spec.heads}, {"dim", spec.dim}, {"rope_dim", spec.rope_dim}, {"top_k", spec.top_k}};
}

Json json(const TokenIndexer& indexer) {
  return {{"spec", json(indexer.spec)},
          {"query", json(indexer.query)},
          {"key", json(indexer.key)},
          {"weights", json(indexer.weights)},
          {"key_norm", json(indexer.key_norm)},
          {"rope", json(indexer.rope)},
          {"kpool", indexer.kpool},
          {"always_select_tail", indexer.always_select_tail},
          {"pool_gate", json(indexer.pool_gate)},
          {"pool_positions", json(indexer.pool_positions)}};
}

Json json(const Mla& mla) {
  const algorithm::MlaSpec& spec = mla.spec;
  Json out{{"kind", "mla"},
           {"heads", spec.heads},
           {"q_rank", spec.q_rank},
           {"latent_rank", spec.latent_rank},
           {"nope_dim", spec.nope_dim},
           {"rope_dim", spec.rope_dim},
           {"value_dim", spec.value_dim},
           {"scale", number(spec.scale)},
           {"latent_eps", number(spec.latent_eps)},
           {"use_rope", spec.use_rope},
           {"output_gate", spec.output_gate},
           {"temperature_scale", number(spec.temperature_scale)},
           {"temperature_floor", spec.temperature_floor}};
  out["query_down"] = json(mla.query_down);
  out["query_norm"] = mla.query_down ? json(mla.query_norm) : Json(nullptr);
  out["query"] = json(mla.query);
  out["latent"] = json(mla.latent);
  out["rope_key"] = json(mla.rope_key);
  out["latent_norm"] = json(mla.latent_norm);
  out["rope"] = json(mla.rope);
  out["key_up"] = json(mla.key_up);
  out["key_up_transposed"] = mla.key_up_transposed;
  out["value_up"] = json(mla.value_up);
  out["gate"] = json(mla.gate);
  out["gate_per_head"] = mla.gate_per_head;
  out["output"] = json(mla.output);
  out["indexer"] = mla.indexer ? json(*mla.indexer) : Json(nullptr);
  out["selection_source"] = json(mla.selection_source);
  return out;
}

Json json(const std::optional<CompressedSparse::Compressor>& compressor) {
  if (!compressor) return nullptr;
  return {{"value", json(compressor->value)},
          {"gate", json(compressor->gate)},
          {"positions", json(compressor->positions)},
          {"norm", json(compressor->norm)}};
}

Json json(const CompressedSparse& sparse) {
  const algorithm::CompressedSparseSpec& spec = sparse.spec;
  const bool indexed = spec.selection == algorithm::EntrySelection::kIndexer;
  Json out{{"kind", "compressed_sparse"},
           {"heads", spec.heads},
           {"head_dim", spec.head_dim},
           {"q_rank", spec.q_rank},
           {"window", spec.window},
           {"scale", number(spec.scale)},
           {"norm_eps", number(spec.norm_eps)},
           {"rope", json(spec.rope)},
           {"ratio", spec.ratio},
           {"overlap", spec.overlap},
           {"selection", indexed ? "indexer" : "all"},
           {"indexer", indexed ? json(spec.indexer) : Json(nullptr)},
           {"output_groups", spec.output_groups},
           {"output_rank", spec.output_rank}};
  out["query_down"] = json(sparse.query_down);
  out["query_norm"] = json(sparse.query_norm);
  out["query"] = json(sparse.query);
  out["row"] = json(sparse.row);
  out["row_norm"] = json(sparse.row_norm);
  out["sinks"] = spec.sinks ? json(sparse.sinks) : Json(nullptr);
  out["compressor"] = json(sparse.compressor);
  out["index_compressor"] = json(sparse.index_compressor);
  out["index_query"] = json(sparse.index_query);
  out["index_weights"] = json(sparse.index_weights);
  out["output_down"] = json(sparse.output_down);
  out["output"] = json(sparse.output);
  return out;
}

Json json(const std::vector<Linear>& linears) {
  Json out = Json::array();
  for (const Linear& linear : linears) out.push_back(json(linear));
  return out;
}

Json json(const std::vector<WeightRef>& weights) {
  Json out = Json::array();
  for (const WeightRef& weight : weights) out.push_back(json(weight));
  return out;
}

Json json(const GatedDeltaNet& net) {
  const algorithm::GatedDeltaNetSpec& spec = net.spec;
  return {{"kind", "gated_delta_net"},
          {"key_heads", spec.key_heads},
          {"value_heads", spec.value_heads},
          {"key_dim", spec.key_dim},
          {"value_dim", spec.value_dim},
          {"kernel", spec.kernel},
          {"mapping", spec.mapping == algorithm::KeyHeads::kTiled ? "tiled" : "grouped"},
          {"l2_eps", number(spec.l2_eps)},
          {"norm_eps", number(spec.norm_eps)},
          {"channels", json(net.channels)},
          {"convolutions", json(net.convolutions)},
          {"alpha", json(net.alpha)},
          {"beta", json(net.beta)},
          {"gate", json(net.gate)},
          {"output", json(net.output)},
          {"rate", json(net.rate)},
          {"dt_bias", json(net.dt_bias)},
          {"norm", json(net.norm)}};
}

Json json(const Kda& kda) {
  const algorithm::KdaSpec& spec = kda.spec;
  return {{"kind", "kda"},
          {"heads", spec.heads},
          {"dim", spec.dim},
          {"kernel", spec.kernel},
          {"lower_bound", number(spec.lower_bound)},
          {"normalize_keys", spec.normalize_keys},
          {"l2_eps", number(spec.l2_eps)},
          {"norm_eps", number(spec.norm_eps)},
          {"channels", json(kda.channels)},
          {"convolutions", json(kda.convolutions)},
          {"forget_down", json(kda.forget_down)},
          {"forget", json(kda.forget)},
          {"beta", json(kda.beta)},
          {"gate_down", json(kda.gate_down)},
          {"gate", json(kda.gate)},
          {"output", json(kda.output)},
          {"rate", json(kda.rate)},
          {"dt_bias", json(kda.dt_bias)},
          {"norm", json(kda.norm)}};
}

Json json(const DenseMlp& mlp) {
  return {{"kind", "dense_mlp"},
          {"width", mlp.spec.width},
          {"hidden", mlp.spec.hidden},
          {"gated", mlp.spec.gated},
          {"activation", json(mlp.spec.activation)},
          {"gate", json(mlp.gate)},
          {"up", json(mlp.up)},
          {"down", json(mlp.down)}};
}

Json json(const algorithm::RoutingSpec& spec) {
  return {{"experts", spec.experts},
          {"chosen", spec.chosen},
          {"score", word(spec.score)},
          {"correction", spec.correction},
          {"hashed", spec.hashed},
          {"groups", spec.groups},
          {"kept_groups", spec.kept_groups},
          {"group_best", spec.group_best},
          {"normalize", spec.normalize},
          {"sum_eps", number(spec.sum_eps)},
          {"sum_floor", number(spec.sum_floor)},
          {"scale", number(spec.scale)},
          {"scale_per_expert", spec.scale_per_expert}};
}

Json json(const Moe& moe) {
  Json out{{"kind", "moe"},
           {"routing", json(moe.routing)},
           {"width", moe.expert.width},
           {"hidden", moe.expert.hidden},
           {"gated", moe.expert.gated},
           {"activation", json(moe.expert.activation)},
           {"weigh_inputs", moe.weigh_inputs},
           {"router_norm", json(moe.router_norm)},
           {"router_scale", number(moe.router_scale)}};
  out["router"] = json(moe.router);
  out["correction"] = json(moe.correction);
  out["expert_scale"] = json(moe.expert_scale);
  out["hash_table"] = json(moe.hash_table);
  out["gate"] = json(moe.gate);
  out["up"] = json(moe.up);
  out["down"] = json(moe.down);
  out["latent_down"] = json(moe.latent_down);
  out["latent_norm"] = json(moe.latent_norm);
  out["latent_up"] = json(moe.latent_up);
  out["shared"] = moe.shared ? json(*moe.shared) : Json(nullptr);
  out["shared_gate"] = json(moe.shared_gate);
  return out;
}

Json json(const FfnSum& sum) {
  Json parts = Json::array();
  for (const FfnSum::Part& part : sum.parts)
    parts.push_back(
        {{"norm", json(part.norm)},
         {"mixer", std::visit([](const auto& mixer) { return json(mixer); }, part.mixer)},
         {"branch_norm", json(part.branch_norm)}});
  return {{"kind", "ffn_sum"}, {"parts", std::move(parts)}};
}

Json json(const PerLayerInput& input) {
  return {{"kind", "per_layer_input"}, {"width", input.width},
          {"index", input.index},      {"activation", json(input.activation)},
          {"gate", json(input.gate)},  {"output", json(input.output)}};
}

Json json(const StreamWeights& streams) {
  if (!streams.fn) return nullptr;
  return {{"fn", json(streams.fn)}, {"base", json(streams.base)}, {"scale", json(streams.scale)}};
}

Json json(const BlockMixWeights& mix) {
  if (!mix.projection) return nullptr;
  return {{"norm", json(mix.norm)}, {"projection", json(mix.projection)}};
}

Json json(const Site& site) {
  return {{"norm", json(site.norm)},
          {"shares_norm", site.shares_norm},
          {"mixer", std::visit([](const auto& mixer) { return json(mixer); }, site.mixer)},
          {"branch_norm", json(site.branch_norm)},
          {"scale", number(site.scale)},
          {"sum_norm", json(site.sum_norm)},
          {"streams", json(site.streams)},
          {"block_mix", json(site.block_mix)}};
}

Json json(const Layer& layer) {
  Json sites = Json::array();
  for (const Site& site : layer.sites) sites.push_back(json(site));
  return {{"side_by_side", layer.side_by_side},
          {"scale", number(layer.scale)},
          {"sites", std::move(sites)}};
}

Json json(const Residual& residual) {
  return std::visit(base::Overloaded{[](std::monostate) {
                                       return Json{{"kind", "plain"}};
                                     },
                                     [](const HyperConnections& hyper) {
                                       return Json{{"kind", "hyper_connections"},
                                                   {"streams", hyper.spec.streams},
                                                   {"width", hyper.spec.width},
                                                   {"iterations", hyper.spec.iterations},
                                                   {"eps", number(hyper.spec.eps)},
                                                   {"norm_eps", number(hyper.spec.norm_eps)},
                                                   {"leave", json(hyper.leave)}};
                                     },
                                     [](const AttentionResidual& blocks) {
                                       return Json{{"kind", "attention_residual"},
                                                   {"block_size", blocks.spec.block_size},
                                                   {"width", blocks.spec.width},
                                                   {"eps", number(blocks.spec.eps)},
                                                   {"leave", json(blocks.leave)}};
                                     }},
                    residual);
}

Json json(const Embedding& embedding) {
  Json out{{"table", json(embedding.table)},
           {"positions", json(embedding.positions)},
           {"position_rows", embedding.position_rows},
           {"token_type", json(embedding.token_type)},
           {"scale", number(embedding.scale)},
           {"norm", json(embedding.norm)},
           {"per_layer", nullptr}};
  if (const auto& rows = embedding.per_layer)
    out["per_layer"] = {{"width", rows->width},
                        {"table", json(rows->table)},
                        {"table_scale", number(rows->table_scale)},
                        {"projection", json(rows->projection)},
                        {"projection_scale", number(rows->projection_scale)},
                        {"norm", json(rows->norm)},
                        {"sum_scale", number(rows->sum_scale)}};
  return out;
}

Json json(const DraftBlock& draft) {
  return {{"reads", word(draft.reads)},           {"table", json(draft.table)},
          {"token_norm", json(draft.token_norm)}, {"row_norm", json(draft.row_norm)},
          {"token", json(draft.token)},           {"row", json(draft.row)},
          {"layer", json(draft.layer)},           {"leave", json(draft.leave)},
          {"final_norm", json(draft.final_norm)}, {"output", json(draft.output)}};
}

}  // namespace

std::string print::layer_json(const Layer& layer) {
  return json(layer).dump();
}

std::string to_json(const Plan& plan) {
  Json layers = Json::array();
  for (const Layer& layer : plan.layers) layers.push_back(json(layer));
  Json drafts = Json::array();
  for (const DraftBlock& draft : plan.drafts) drafts.push_back(json(draft));
  const Json out{{"architecture", plan.architecture},
                 {"name", plan.name},
                 {"width", plan.width},
                 {"vocabulary", plan.vocabulary},
                 {"context", plan.context},
                 {"embedding", json(plan.embedding)},
                 {"residual", json(plan.residual)},
                 {"layers", std::move(layers)},
                 {"final_norm", json(plan.final_norm)},
                 {"head",
                  {{"output", json(plan.head.output)},
                   {"scale", number(plan.head.scale)},
                   {"softcap", number(plan.head.softcap)}}},
                 {"drafts", std::move(drafts)}};
  // A name from the file may not be UTF-8.
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lemma::model
