// SPDX-License-Identifier: Apache-2.0
#include "model/plan.hpp"

#include <cmath>
#include <iterator>
#include <string>

#include "base/overloaded.hpp"
#include "base/raise.hpp"

namespace lemma::model {
namespace {

using base::Overloaded;
using base::raise;

void require(bool condition, const char* what) {
  if (!condition) raise(ErrorKind::kUnsupported, "{}", what);
}

void validate(const Norm& norm) {
  norm.spec.validate();
}

// A draft block runs by itself: of other layers nothing is there to be read.
void require_reachable(std::uint32_t source, const Plan& plan, std::size_t layer) {
  require(layer < plan.layers.size() || source == layer,
          "a draft block reads a layer that is not its own");
}

void validate(const std::optional<Norm>& norm) {
  if (norm) validate(*norm);
}

void validate(const Gqa& gqa, const Plan& plan, std::size_t layer) {
  gqa.spec.validate();
  require(gqa.query && gqa.output, "query and output projections are required");
  require(gqa.source ? !gqa.key && !gqa.value : static_cast<bool>(gqa.key),
          "a key projection is required where no other layer's keys are read, and only there");
  require(!gqa.spec.sinks || gqa.sinks, "sinks are asked for, but no tensor is named");
  require(std::isfinite(gqa.clamp) && gqa.clamp >= 0.f, "clamp must be finite and not negative");
  if (gqa.rope) gqa.rope->validate(gqa.spec.head_dim);
  if (gqa.qk_norm) {
    validate(gqa.qk_norm->query);
    validate(gqa.qk_norm->key);
  }
  validate(gqa.value_norm);
  if (gqa.indexer) gqa.indexer->spec.validate();
  if (!gqa.source) return;
  require(*gqa.source < layer, "keys and values are read from a layer that comes later");
  require_reachable(*gqa.source, plan, layer);
  for (const Site& site : plan.layers[*gqa.source].sites)
    if (const auto* owner = std::get_if<Gqa>(&site.mixer)) {
      const algorithm::GqaSpec &own = owner->spec, &spec = gqa.spec;
      require(!owner->source && own.kv_heads == spec.kv_heads && own.head_dim == spec.head_dim &&
                  own.value_dim == spec.value_dim && own.window == spec.window,
              "the layer whose keys and values are read has other heads or another window");
      return;
    }
  require(false, "the layer whose keys and values are read has none");
}

void validate(const Mla& mla, const Plan& plan, std::size_t layer) {
  mla.spec.validate();
  require(mla.query && mla.latent && mla.output && mla.key_up && mla.value_up,
          "query, latent, output and both up projections are required");
  require(static_cast<bool>(mla.query_down) == (mla.spec.q_rank > 0),
          "a query latent needs its projection, and only then");
  require(static_cast<bool>(mla.rope_key) == (mla.spec.rope_dim > 0),
          "a rope part needs its key projection, and only then");
  require(static_cast<bool>(mla.gate) == mla.spec.output_gate,
          "an output gate needs its projection, and only then");
  validate(mla.latent_norm);
  if (mla.rope) mla.rope->validate(mla.spec.rope_dim);
  if (mla.indexer) dsa_spec(mla).validate();
  if (!mla.selection_source) return;
  require(*mla.selection_source <= layer, "tokens are chosen by a layer that comes later");
  require_reachable(*mla.selection_source, plan, layer);
  for (const Site& site : plan.layer_at(*mla.selection_source).sites)
    if (const auto* chooser = std::get_if<Mla>(&site.mixer); chooser && chooser->indexer) return;
  require(false, "the layer that should choose tokens has no indexer");
}

void validate(const CompressedSparse& sparse, const Plan&, std::size_t) {
  sparse.spec.validate();
  require(sparse.query_down && sparse.query && sparse.row && sparse.output_down && sparse.output,
          "query, row and output projections are required");
  require(sparse.compressor.has_value() == (sparse.spec.ratio > 0),
          "a compression ratio needs a compressor, and only then");
  require(sparse.index_compressor.has_value() ==
              (sparse.spec.selection == algorithm::EntrySelection::kIndexer),
          "an indexer needs a compressor of its own, and only then");
  require(!sparse.spec.sinks || sparse.sinks, "sinks are asked for, but no tensor is named");
}

template <typename Recurrent>
void validate_recurrent(const Recurrent& mixer) {
  mixer.spec.validate();
  require(mixer.channels.size() == 1 || mixer.channels.size() == 3,
          "the channels are one projection or three");
  require(mixer.convolutions.size() == mixer.channels.size(),
          "the convolution has a weight for each projection of channels");
  require(mixer.beta && mixer.gate && mixer.output && mixer.rate && mixer.dt_bias && mixer.norm,
          "beta, gate and output projections, rate, bias and norm are required");
}

void validate(const GatedDeltaNet& net, const Plan&, std::size_t) {
  validate_recurrent(net);
}
void validate(const Kda& kda, const Plan&, std::size_t) {
  validate_recurrent(kda);
}

void validate(const DenseMlp& mlp, const Plan& plan, std::size_t) {
  mlp.spec.validate();
  require(mlp.spec.width == plan.width, "the feed-forward block's width differs from the model's");
  require(mlp.up && mlp.down, "up and down projections are required");
  require(mlp.spec.gated == static_cast<bool>(mlp.gate),
          "a gate projection is required in a gated block, and only there");
}

void validate(const Moe& moe, const Plan& plan, std::size_t layer) {
  moe.routing.validate();
  moe.expert.validate();
  require(moe.router && moe.up && moe.down, "router, up and down projections are required");
  require(moe.expert.gated == static_cast<bool>(moe.gate),
          "a gate projection is required in gated experts, and only there");
  require(moe.routing.correction == static_cast<bool>(moe.correction) &&
              moe.routing.scale_per_expert == static_cast<bool>(moe.expert_scale) &&
              moe.routing.hashed == static_cast<bool>(moe.hash_table),
          "routing's correction, scale and table must be named where it uses them, and only there");
  require(static_cast<bool>(moe.latent_down) == static_cast<bool>(moe.latent_up),
          "a latent space needs a way in and a way out");
  require(moe.latent_down || moe.expert.width == plan.width,
          "the experts' width differs from the model's");
  require(moe.shared || !moe.shared_gate, "there is a gate for shared experts, but none of them");
  validate(moe.router_norm);
  require(std::isfinite(moe.router_scale), "the router's scale is not finite");
  validate(moe.latent_norm);
  if (moe.shared) validate(*moe.shared, plan, layer);
}

void validate(const FfnSum& sum, const Plan& plan, std::size_t layer) {
  require(!sum.parts.empty(), "a sum has no parts");
  for (const FfnSum::Part& part : sum.parts) {
    validate(part.norm);
    validate(part.branch_norm);
    std::visit([&](const auto& mixer) { validate(mixer, plan, layer); }, part.mixer);
  }
}

void validate(const PerLayerInput& input, const Plan& plan, std::size_t) {
  input.activation.validate();
  require(plan.embedding.per_layer.has_value(), "the plan has no rows per layer");
  require(input.width == plan.embedding.per_layer->width && input.index < plan.layers.size(),
          "the row per layer has another width or index than the plan's");
  require(input.gate && input.output, "gate and output projections are required");
}

void validate(const Site& site, const Site* previous, const Plan& plan, std::size_t layer) {
  const bool side_by_side = plan.layer_at(layer).side_by_side;
  validate(site.norm);
  validate(site.branch_norm);
  validate(site.sum_norm);
  require(std::isfinite(site.scale), "the site's scale is not finite");
  require(!site.shares_norm || (previous && !site.norm && side_by_side),
          "a shared norm needs a site beside it that has one");
  require(!site.sum_norm || !side_by_side, "a norm after the sum needs sites one after the other");
  const auto* hyper = std::get_if<HyperConnections>(&plan.residual);
  require((hyper != nullptr) == static_cast<bool>(site.streams.fn),
          "hyper-connections need parameters at every site, and only there");
  const auto* blocks = std::get_if<AttentionResidual>(&plan.residual);
  require((blocks != nullptr) == static_cast<bool>(site.block_mix.projection),
          "the attention residual needs parameters at every site, and only there");
  require(std::holds_alternative<std::monostate>(plan.residual) ||
              (!side_by_side && site.scale == 1.f && !site.sum_norm &&
               plan.layer_at(layer).scale == 1.f),
          "only a plain residual knows sites side by side, scales and norms after the sum");
  std::visit([&](const auto& mixer) { validate(mixer, plan, layer); }, site.mixer);
}

void validate_sites(const Plan& plan, std::size_t index) {
  const Layer& layer = plan.layer_at(index);
  for (std::size_t s = 0; s < layer.sites.size(); ++s) {
    try {
      validate(layer.sites[s], s ? &layer.sites[s - 1] : nullptr, plan, index);
    } catch (const Error& error) {
      throw error.within("layer " + std::to_string(index) + ", " +
                         mixer_name(layer.sites[s].mixer));
    }
  }
}

void validate(const DraftBlock& draft, const Plan& plan) {
  require(draft.table && draft.token && draft.row && draft.output,
          "embedding, both projections and output matrix are required");
  validate(draft.token_norm);
  validate(draft.row_norm);
  validate(draft.final_norm);
  require(!std::holds_alternative<AttentionResidual>(plan.residual),
          "no draft block is known with the attention residual");
  const auto* hyper = std::get_if<HyperConnections>(&plan.residual);
  require(hyper ? static_cast<bool>(draft.leave.fn) == static_cast<bool>(hyper->leave.fn)
                : !draft.leave.fn,
          "a draft block leaves its streams as the model does");
  require(!hyper || draft.reads == DraftBlock::Reads::kStream,
          "a draft block with several streams reads all streams of the model");
  for (const Site& site : draft.layer.sites)
    require(!std::holds_alternative<PerLayerInput>(site.mixer),
            "a draft block has no row of the token of its own");
}

}  // namespace

const char* mixer_name(const Mixer& mixer) noexcept {
  static constexpr const char* kNames[] = {
      "gqa",       "mla", "compressed_sparse", "gated_delta_net", "kda",
      "dense_mlp", "moe", "ffn_sum",           "per_layer_input"};
  static_assert(std::size(kNames) == std::variant_size_v<Mixer>);
  return kNames[mixer.index()];
}

algorithm::DsaSpec dsa_spec(const Mla& mla) {
  const TokenIndexer& indexer = *mla.indexer;
  algorithm::DsaSpec spec;
  spec.attention = mla.spec;
  spec.indexer = indexer.spec;
  spec.key_norm_eps = indexer.key_norm.spec.eps;
  spec.kpool = indexer.kpool;
  spec.always_select_tail = indexer.always_select_tail;
  return spec;
}

bool looks_along_tokens(const Mixer& mixer) noexcept {
  return std::visit(
      Overloaded{[](const DenseMlp&) { return false; }, [](const Moe&) { return false; },
                 [](const FfnSum&) { return false; }, [](const PerLayerInput&) { return false; },
                 [](const auto&) { return true; }},
      mixer);
}

void Plan::validate() const {
  if (width == 0 || vocabulary == 0 || context == 0 || layers.empty())
    raise(ErrorKind::kUnsupported,
          "plan of '{}': width {}, vocabulary {}, context {} and {} layers; all must be positive",
          architecture, width, vocabulary, context, layers.size());
  require(static_cast<bool>(embedding.table), "the plan names no embedding table");
  if (!std::isfinite(embedding.scale) || !std::isfinite(head.scale) || !(head.softcap >= 0.f))
    raise(ErrorKind::kUnsupported,
          "plan of '{}': embedding scale {}, head scale {}, soft-cap {}; "
          "all must be finite and the soft-cap not negative",
          architecture, embedding.scale, head.scale, head.softcap);
  for (std::size_t i = 0; i < layers.size() + drafts.size(); ++i) validate_sites(*this, i);
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    try {
      model::validate(drafts[i], *this);
    } catch (const Error& error) {
      throw error.within("draft block " + std::to_string(i));
    }
  }
}

}  // namespace lemma::model
