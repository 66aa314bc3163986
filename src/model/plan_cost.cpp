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
    for (const Linear* linear : {&gqa.query, &gqa.key, &gqa.value}) add(*linear);
    if (gqa.qk_norm) {
      add(gqa.qk_norm->query);
      add(gqa.qk_norm->key);
    }
    add(gqa.sinks);
    add(gqa.output);
  }
  void add(const DenseMlp& mlp) {
    for (const Linear* linear : {&mlp.gate, &mlp.up, &mlp.down}) add(*linear);
  }
  void add(const Site& site) {
    add(site.norm);
    std::visit([&](const auto& mixer) { add(mixer); }, site.mixer);
    add(site.branch_norm);
    add(site.sum_norm);
  }

  std::vector<const WeightRef*> take() { return std::move(weights_); }

 private:
  std::vector<const WeightRef*> weights_;
};

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
              "tensor '{}' has {} rows; the plan takes rows {} to {} (stride {})", tensor.name,
              rows, view.begin, view.end, view.stride);
}

void add_weights(const Plan& plan, const weights::Checkpoint& checkpoint, Cost& cost) {
  using Seen =
      std::tuple<std::string_view, View::Kind, std::uint64_t, std::uint64_t, std::uint64_t>;
  std::set<Seen> seen;  // a tied matrix is held once
  std::map<Format, Cost::FormatShare> shares;
  for (const WeightRef* ref : weights_of(plan)) {
    const View& view = ref->view;
    if (!seen.insert({ref->tensor, view.kind, view.begin, view.end, view.stride}).second) continue;
    const Share share = share_of(checkpoint.at(ref->tensor), view);
    Cost::FormatShare& sum =
        shares.try_emplace(share.format, Cost::FormatShare{share.format}).first->second;
    sum.bytes += weights::row_bytes(share.format, share.elements);
    sum.parameters += share.elements;
  }
  for (const auto& [format, share] : shares) {
    cost.weights.push_back(share);
    cost.weight_bytes += share.bytes;
    cost.parameters += share.parameters;
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
std::uint64_t row_width(const DenseMlp& mlp) {
  return std::uint64_t{mlp.spec.hidden} * (mlp.spec.gated ? 2 : 1);
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

}  // namespace

std::vector<const WeightRef*> weights_of(const Plan& plan) {
  WeightList list;
  list.add(plan.embedding.table);
  list.add(plan.embedding.positions);
  list.add(plan.embedding.norm);
  for (const Layer& layer : plan.layers)
    for (const Site& site : layer.sites) list.add(site);
  list.add(plan.final_norm);
  list.add(plan.head.output);
  return list.take();
}

algorithm::Slots slots_of(const Plan& plan) {
  algorithm::Slots slots;
  for (const Layer& layer : plan.layers)
    for (const Site& site : layer.sites)
      if (const auto* gqa = std::get_if<Gqa>(&site.mixer))
        for (const algorithm::Slot& slot : gqa->spec.slots()) slots.push_back(slot);
  return slots;
}

Cost cost_of(const Plan& plan, const weights::Checkpoint& checkpoint, const CostOptions& options) {
  Cost cost;
  add_weights(plan, checkpoint, cost);
  cost.context = options.context ? options.context : plan.context;
  const std::uint32_t rows = std::min(options.step_rows, cost.context);
  const state::Layout layout(slots_of(plan), {.format = options.row_format});
  cost.state_bytes = layout.bytes_for(cost.context, rows);
  cost.state_formula_bytes = layout.formula_bytes(cost.context);
  cost.state_formula = layout.formula(cost.context);
  cost.scratch_bytes = scratch_bytes(plan, rows, std::min(options.logit_rows, rows));
  return cost;
}

}  // namespace lemma::model
