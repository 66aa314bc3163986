// SPDX-License-Identifier: Apache-2.0
#include "quantize/weight_uses.hpp"

#include <string_view>

#include "model/arch/arch.hpp"
#include "model/decoder.hpp"
#include "model/plan_cost.hpp"
#include "model/weight_binder.hpp"

namespace lemma::quantize {
namespace {

/// Views that a block format cannot be seen through.
bool reorders(const weights::View& view) {
  using enum weights::View::Kind;
  return view.kind == kTranspose || view.kind == kAddOne || view.kind == kNegExp ||
         view.kind == kElements;
}

void collect_routers(const model::Mixer& mixer, std::set<std::string_view>& routers) {
  if (const auto* moe = std::get_if<model::Moe>(&mixer)) {
    routers.insert(moe->router.weight.tensor);
    routers.insert(moe->shared_gate.tensor);
  }
  if (const auto* sum = std::get_if<model::FfnSum>(&mixer))
    for (const model::FfnSum::Part& part : sum->parts)
      if (const auto* moe = std::get_if<model::Moe>(&part.mixer)) {
        routers.insert(moe->router.weight.tensor);
        routers.insert(moe->shared_gate.tensor);
      }
}

}  // namespace

WeightUses weight_uses(const weights::Checkpoint& checkpoint) {
  const model::Plan plan = model::make_plan(checkpoint, {});
  model::WeightNotes notes(checkpoint);
  model::record(plan, notes);
  struct Use {
    bool matrix = false, table = false, vector = false;
  };
  std::map<std::string_view, Use> uses;
  for (const model::WeightNotes::Note& note : notes.notes()) {
    Use& use = uses[note.ref.tensor];
    use.matrix |= note.use == backend::WeightUse::kMatrix;
    use.table |= note.use == backend::WeightUse::kTable;
    use.vector |= note.use == backend::WeightUse::kVector;
  }

  std::set<std::string_view> kept;  // a choice of experts should not change, and costs few bytes
  for (const model::Layer& layer : plan.layers)
    for (const model::Site& site : layer.sites) collect_routers(site.mixer, kept);
  for (const weights::WeightRef* weight : model::weights_of(plan))
    if (reorders(weight->view)) kept.insert(weight->tensor);

  WeightUses result;
  result.layers = static_cast<std::uint32_t>(plan.layers.size());
  result.tied = plan.head.output.weight.tensor == plan.embedding.table.tensor;
  const std::string& table = plan.embedding.table.tensor;
  for (const auto& [name, use] : uses) {
    const bool looked_up_only = use.table && !use.matrix;
    const bool token_rows = name == table || (plan.embedding.per_layer &&
                                              name == plan.embedding.per_layer->table.tensor);
    if (use.vector || kept.contains(name) || (looked_up_only && !token_rows)) continue;
    result.quantizable.emplace(name);
  }
  return result;
}

}  // namespace lemma::quantize
