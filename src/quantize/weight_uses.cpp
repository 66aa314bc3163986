// SPDX-License-Identifier: Apache-2.0
#include "quantize/weight_uses.hpp"

#include "base/raise.hpp"
#include "model/arch/arch.hpp"
#include "model/decoder.hpp"
#include "model/plan_cost.hpp"

namespace lemma::quantize {
namespace {

/// Takes weights and forgets their bytes.
class NotingBackend final : public backend::Backend {
 public:
  struct Use {
    bool matrix = false, table = false, vector = false;
  };
  std::map<std::string, Use, std::less<>> uses;

  std::string_view name() const noexcept override { return "notes"; }
  std::string description() const override { return "takes notes"; }
  backend::WeightId add(weights::Matrix matrix, backend::WeightUse use) override {
    Use& seen = uses[matrix.name];
    (use == backend::WeightUse::kMatrix  ? seen.matrix
     : use == backend::WeightUse::kTable ? seen.table
                                         : seen.vector) = true;
    return next_++;
  }
  std::size_t weight_bytes() const noexcept override { return 0; }
  std::unique_ptr<backend::StateStore> make_state(const state::Layout&,
                                                  std::span<const std::size_t>) override {
    base::raise(ErrorKind::kInternal, "a backend that takes notes was asked to run");
  }
  std::unique_ptr<backend::Executable> prepare(const backend::Program&, backend::StateStore&,
                                               const backend::PrepareOptions&) override {
    base::raise(ErrorKind::kInternal, "a backend that takes notes was asked to run");
  }

 private:
  backend::WeightId next_ = 0;
};

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
  NotingBackend notes;
  model::record(plan, checkpoint, notes);

  std::set<std::string_view> kept;  // a choice of experts should not change, and costs few bytes
  for (const model::Layer& layer : plan.layers)
    for (const model::Site& site : layer.sites) collect_routers(site.mixer, kept);
  for (const weights::WeightRef* weight : model::weights_of(plan))
    if (reorders(weight->view)) kept.insert(weight->tensor);

  WeightUses result;
  result.layers = static_cast<std::uint32_t>(plan.layers.size());
  result.tied = plan.head.output.weight.tensor == plan.embedding.table.tensor;
  const std::string& table = plan.embedding.table.tensor;
  for (const auto& [name, use] : notes.uses) {
    const bool looked_up_only = use.table && !use.matrix;
    const bool token_rows = name == table || (plan.embedding.per_layer &&
                                              name == plan.embedding.per_layer->table.tensor);
    if (use.vector || kept.contains(name) || (looked_up_only && !token_rows)) continue;
    result.quantizable.insert(name);
  }
  return result;
}

}  // namespace lemma::quantize
