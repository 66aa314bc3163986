// SPDX-License-Identifier: Apache-2.0
#include "model/plan_cost.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/raise.hpp"
#include "state/layout.hpp"

namespace lemma::model {
namespace {

using weights::Format;
using weights::TensorInfo;

class WeightList {
 public:
  void add(const WeightRef& weight) {
    if (weight) weights_.push_back(&weight);
  }
  void add(const Linear& linear) {
    add(linear.weight);
    add(linear.bias);
  }
  void add(const Norm& norm) {
    add(norm.weight);
    add(norm.bias);
  }
  void add(const std::optional<Norm>& norm) {
    if (norm) add(*norm);
  }
  void add(const Gqa& gqa) {
    for (const Linear* linear : {&gqa.query, &gqa.key, &gqa.value, &gqa.gate}) add(*linear);
    if (gqa.qk_norm) {
      add(gqa.qk_norm->query);
      add(gqa.qk_norm->key);
    }
    add(gqa.value_norm);
    if (gqa.indexer) {
      add(gqa.indexer->query);
      add(gqa.indexer->key);
      add(gqa.indexer->query_norm);
      add(gqa.indexer->key_norm);
    }
    add(gqa.sinks);
    add(gqa.output);
  }
  void add(const Mla& mla) {
    add(mla.query_down);
    add(mla.query_norm);
    for (const Linear* linear : {&mla.query, &mla.latent, &mla.rope_key}) add(*linear);
    add(mla.latent_norm);
    add(mla.key_up);
    add(mla.value_up);
    if (mla.indexer) {
      const TokenIndexer& indexer = *mla.indexer;
      for (const Linear* linear : {&indexer.query, &indexer.key, &indexer.weights}) add(*linear);
      add(indexer.key_norm);
      add(indexer.pool_gate);
      add(indexer.pool_positions);
    }
    add(mla.gate);
    add(mla.output);
  }
  void add(const CompressedSparse& sparse) {
    add(sparse.query_down);
    add(sparse.query_norm);
    add(sparse.query);
    add(sparse.row);
    add(sparse.row_norm);
    for (const auto* compressor : {&sparse.compressor, &sparse.index_compressor}) {
      if (!*compressor) continue;
      add((*compressor)->value);
      add((*compressor)->gate);
      add((*compressor)->positions);
      add((*compressor)->norm);
    }
    add(sparse.index_query);
    add(sparse.index_weights);
    add(sparse.sinks);
    add(sparse.output_down);
    add(sparse.output);
  }
  template <typename Recurrent>
  void add_recurrent(const Recurrent& mixer) {
    for (const Linear& linear : mixer.channels) add(linear);
    for (const WeightRef& weight : mixer.convolutions) add(weight);
    for (const Linear* linear : {&mixer.beta, &mixer.gate}) add(*linear);
    for (const WeightRef* weight : {&mixer.rate, &mixer.dt_bias, &mixer.norm}) add(*weight);
    add(mixer.output);
  }
  void add(const GatedDeltaNet& net) {
    add(net.alpha);
    add_recurrent(net);
  }
  void add(const Kda& kda) {
    for (const Linear* linear : {&kda.forget_down, &kda.forget, &kda.gate_down}) add(*linear);
    add_recurrent(kda);
  }
  void add(const DenseMlp& mlp) {
    for (const Linear* linear : {&mlp.gate, &mlp.up, &mlp.down}) add(*linear);
  }
  void add(const Moe& moe) {
    add(moe.router_norm);
    add(moe.router);
    for (const WeightRef* weight : {&moe.correction, &moe.expert_scale, &moe.hash_table})
      add(*weight);
    add(moe.latent_down);
    for (const Linear* linear : {&moe.gate, &moe.up, &moe.down}) add(*linear);
    add(moe.latent_norm);
    add(moe.latent_up);
    if (moe.shared) add(*moe.shared);
    add(moe.shared_gate);
  }
  void add(const FfnSum& sum) {
    for (const FfnSum::Part& part : sum.parts) {
      add(part.norm);
      std::visit([&](const auto& mixer) { add(mixer); }, part.mixer);
      add(part.branch_norm);
    }
  }
  void add(const PerLayerInput& input) {
    add(input.gate);
    add(input.output);
  }
  void add(const StreamWeights& streams) {
    for (const WeightRef* weight : {&streams.fn, &streams.base, &streams.scale}) add(*weight);
  }
  void add(const BlockMixWeights& mix) {
    add(mix.norm);
    add(mix.projection);
  }
  void add(const Site& site) {
    add(site.streams);
    add(site.block_mix);
    add(site.norm);
    std::visit([&](const auto& mixer) { add(mixer); }, site.mixer);
    add(site.branch_norm);
    add(site.sum_norm);
  }
  void add(const DraftBlock& draft) {
    add(draft.table);
    add(draft.token_norm);
    add(draft.row_norm);
    add(draft.token);
    add(draft.row);
    for (const Site& site : draft.layer.sites) add(site);
    add(draft.leave);
    add(draft.final_norm);
    add(draft.output);
  }
  void add(const Embedding& embedding) {
    add(embedding.table);
    add(embedding.positions);
    add(embedding.token_type);
    add(embedding.norm);
    if (!embedding.per_layer) return;
    add(embedding.per_layer->table);
    add(embedding.per_layer->projection);
    add(embedding.per_layer->norm);
  }

  std::vector<const WeightRef*> take() { return std::move(weights_); }

 private:
  std::vector<const WeightRef*> weights_;
};

std::vector<const WeightRef*> weights_of_model(const Plan& plan) {
  WeightList list;
  list.add(plan.embedding);
  for (const Layer& layer : plan.layers)
    for (const Site& site : layer.sites) list.add(site);
  if (const auto* hyper = std::get_if<HyperConnections>(&plan.residual)) list.add(hyper->leave);
  if (const auto* blocks = std::get_if<AttentionResidual>(&plan.residual)) list.add(blocks->leave);
  list.add(plan.final_norm);
  list.add(plan.head.output);
  return list.take();
}

struct Share {
  Format format;
  std::uint64_t elements;
};

// What binding `ref` will hold. Row views of a vector take elements.
Share share_of(const TensorInfo& tensor, const View& view) {
  using Kind = View::Kind;
  const std::uint64_t rows = tensor.rows() == 1 ? tensor.row_elements() : tensor.rows();
  const std::uint64_t per_row = tensor.rows() == 1 ? 1 : tensor.row_elements();
  switch (view.kind) {
    case Kind::kWhole:
    case Kind::kTranspose:
      return {tensor.format, tensor.elements()};
    case Kind::kAddOne:
    case Kind::kNegExp:
      return {Format::kF32, tensor.elements()};
    case Kind::kColumns:
      if (view.begin > view.end || view.end > tensor.row_elements()) break;
      return {tensor.format, (view.end - view.begin) * tensor.rows()};
    case Kind::kRows:
    case Kind::kElements:
      if (view.begin > view.end || view.end > rows) break;
      return {tensor.format, (view.end - view.begin) * per_row};
    case Kind::kStridedRows:
      if (view.stride == 0 || rows % view.stride != 0 || view.begin > view.end ||
          view.end > view.stride)
        break;
      return {tensor.format, rows / view.stride * (view.end - view.begin) * per_row};
  }
  base::raise(ErrorKind::kBadFile,
              "tensor '{}' has {} rows of {}; the plan takes {} to {} (stride {})", tensor.name,
              rows, tensor.row_elements(), view.begin, view.end, view.stride);
}

/// Adds up weights; one that is named twice, such as a tied matrix, is held once.
class WeightSum {
 public:
  explicit WeightSum(const weights::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  /// What `ref` adds; no elements where it is there already.
  Share add(const WeightRef& ref) {
    const View& view = ref.view;
    const TensorInfo& tensor = checkpoint_.at(ref.tensor);
    if (!seen_.insert({ref.tensor, view.kind, view.begin, view.end, view.stride}).second)
      return {tensor.format, 0};
    return share_of(tensor, view);
  }

 private:
  const weights::Checkpoint& checkpoint_;
  std::set<std::tuple<std::string_view, View::Kind, std::uint64_t, std::uint64_t, std::uint64_t>>
      seen_;
};

void add_weights(const Plan& plan, const weights::Checkpoint& checkpoint, Cost& cost) {
  WeightSum sum(checkpoint);
  std::map<Format, Cost::FormatShare> shares;
  for (const WeightRef* ref : weights_of_model(plan)) {
    const Share share = sum.add(*ref);
    if (share.elements == 0) continue;
    Cost::FormatShare& total =
        shares.try_emplace(share.format, Cost::FormatShare{share.format}).first->second;
    total.bytes += weights::row_bytes(share.format, share.elements);
    total.parameters += share.elements;
  }
  for (const auto& [format, share] : shares) {
    cost.weights.push_back(share);
    cost.weight_bytes += share.bytes;
    cost.parameters += share.parameters;
  }
  for (const DraftBlock& draft : plan.drafts) {
    WeightList list;
    list.add(draft);
    for (const WeightRef* ref : list.take()) {
      const Share share = sum.add(*ref);
      cost.draft_weight_bytes += weights::row_bytes(share.format, share.elements);
    }
  }
}

// Floats per row beside the stream and its normed copy.
std::uint64_t row_width(const Gqa& gqa) {
  const std::uint64_t heads = gqa.spec.query_heads, kv_heads = gqa.spec.kv_heads;
  const std::uint64_t projected = heads * gqa.spec.head_dim + kv_heads * gqa.spec.head_dim;
  // Norm and rotation write new rows while the old ones are still read.
  const std::uint64_t copies = gqa.qk_norm || gqa.rope ? 2 : 1;
  return copies * projected + kv_heads * gqa.spec.value_dim + heads * gqa.spec.value_dim;
}
std::uint64_t row_width(const Mla& mla) {
  const std::uint64_t heads = mla.spec.heads;
  return heads * (2ull * mla.spec.query_dim() + mla.spec.value_dim) + mla.spec.q_rank +
         2ull * (mla.spec.latent_rank + mla.spec.rope_dim);
}
std::uint64_t row_width(const CompressedSparse& sparse) {
  return 4ull * sparse.spec.heads * sparse.spec.head_dim + sparse.spec.q_rank;
}
std::uint64_t row_width(const GatedDeltaNet& net) {
  return net.spec.channels() + 2ull * net.spec.value_heads * net.spec.value_dim;
}
std::uint64_t row_width(const Kda& kda) {
  return 6ull * kda.spec.heads * kda.spec.dim;
}
std::uint64_t row_width(const Moe& moe) {
  return std::uint64_t{moe.routing.chosen} * moe.expert.hidden * 2 + moe.routing.experts +
         moe.expert.width;
}
std::uint64_t row_width(const DenseMlp& mlp) {
  return std::uint64_t{mlp.spec.hidden} * (mlp.spec.gated ? 2 : 1);
}

std::uint64_t row_width(const FfnSum& sum) {
  std::uint64_t widest = 0;
  for (const FfnSum::Part& part : sum.parts)
    widest = std::max(widest,
                      std::visit([](const auto& mixer) { return row_width(mixer); }, part.mixer));
  return widest;
}
std::uint64_t row_width(const PerLayerInput& input) {
  return 2ull * input.width;
}

// What each mixer remembers, in the order in which the decoder records it.
algorithm::Slots slots_of(const Gqa& gqa) {
  if (gqa.source) return {};
  return gqa.indexer ? gqa.indexer->spec.slots() : gqa.spec.slots();
}
algorithm::Slots slots_of(const Mla& mla) {
  algorithm::Slots slots = mla.spec.slots();
  if (mla.indexer) {
    const algorithm::Slots own = dsa_spec(mla).slots();
    slots.assign(own.begin(), own.end());
  }
  return slots;
}
template <typename Channel>
requires std::is_same_v<Channel, DenseMlp> || std::is_same_v<Channel, Moe> ||
    std::is_same_v<Channel, FfnSum> || std::is_same_v<Channel, PerLayerInput>
        algorithm::Slots slots_of(const Channel&) {
  return {};
}
template <typename Spec>
requires requires(const Spec& mixer) {
  mixer.spec.slots();
}
algorithm::Slots slots_of(const Spec& mixer) {
  return mixer.spec.slots();
}

std::uint64_t scratch_bytes(const Plan& plan, std::uint64_t rows, std::uint64_t logit_rows) {
  std::uint64_t widest = 0;
  for (const Layer& layer : plan.layers)
    for (const Site& site : layer.sites)
      widest = std::max(widest,
                        std::visit([](const auto& mixer) { return row_width(mixer); }, site.mixer));
  // The stream before and after, the normed row and the branch.
  const std::uint64_t per_row = 4 * std::uint64_t{plan.width} + widest;
  const std::uint64_t logits = plan.head.output ? logit_rows * plan.vocabulary : 0;
  return (rows * per_row + logits) * sizeof(float);
}

void add_slots(const Layer& layer, algorithm::Slots& slots) {
  for (const Site& site : layer.sites)
    for (const algorithm::Slot& slot :
         std::visit([](const auto& mixer) { return slots_of(mixer); }, site.mixer))
      slots.push_back(slot);
}

std::uint64_t state_bytes(const algorithm::Slots& slots, const CostOptions& options,
                          std::uint32_t context, std::uint32_t rows) {
  return state::layout_with_snapshots(slots, {.format = options.row_format}, context, rows)
      .bytes_for(context, rows);
}

}  // namespace

std::vector<const WeightRef*> weights_of(const Plan& plan) {
  std::vector<const WeightRef*> all = weights_of_model(plan);
  WeightList list;
  for (const DraftBlock& draft : plan.drafts) list.add(draft);
  for (const WeightRef* weight : list.take()) all.push_back(weight);
  return all;
}

algorithm::Slots slots_of(const Plan& plan) {
  algorithm::Slots slots;
  for (const Layer& layer : plan.layers) add_slots(layer, slots);
  return slots;
}

algorithm::Slots slots_of(const DraftBlock& draft) {
  algorithm::Slots slots;
  add_slots(draft.layer, slots);
  return slots;
}

Cost cost_of(const Plan& plan, const weights::Checkpoint& checkpoint, const CostOptions& options) {
  Cost cost;
  add_weights(plan, checkpoint, cost);
  cost.context = options.context ? options.context : plan.context;
  const std::uint32_t rows = std::min(options.step_rows, cost.context);
  const state::Layout layout = state::layout_with_snapshots(
      slots_of(plan), {.format = options.row_format}, cost.context, rows);
  cost.state_bytes = layout.bytes_for(cost.context, rows);
  cost.state_formula_bytes = layout.formula_bytes(cost.context);
  cost.state_formula = layout.formula(cost.context);
  for (const DraftBlock& draft : plan.drafts)
    cost.draft_state_bytes += state_bytes(slots_of(draft), options, cost.context, rows);
  cost.scratch_bytes = scratch_bytes(plan, rows, std::min(options.logit_rows, rows));
  return cost;
}

}  // namespace lemma::model
