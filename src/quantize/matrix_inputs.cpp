// SPDX-License-Identifier: Apache-2.0
#include "quantize/matrix_inputs.hpp"

#include <algorithm>
#include <variant>

#include "base/check.hpp"
#include "base/overloaded.hpp"
#include "model/decoder.hpp"
#include "model/weight_binder.hpp"

namespace lemma::quantize {
namespace {

using backend::Tensor;
using backend::WeightId;

/// Walks the operations of a program beside those of the same program recorded with notes, which
/// say what a weight is.
class Finder {
 public:
  Finder(backend::Program program, const std::vector<model::WeightNotes::Note>& notes)
      : notes_(notes) {
    found_.program = std::move(program);
  }

  void visit(std::size_t at, const backend::Operation& noted) {
    std::visit(base::Overloaded{
                   [&](const backend::Project& op) {
                     for (const auto& output : op.outputs) use(output.weight, whole(op.in));
                   },
                   [&](const backend::ProjectGroups& op) {
                     use(op.weight, {.site = op.in.id, .cols = op.spec.in, .runs = op.spec.groups});
                   },
                   [&](const backend::Mlp& op) {
                     use(op.gate, whole(op.in));
                     use(op.up, whole(op.in));
                     use(op.down, whole(show<backend::Mlp>(at, op.spec.hidden)));
                   },
                   [&](const backend::Experts& op) { experts(at, op); },
                   [&](const backend::Head& op) { use(op.weight, whole(op.in)); },
                   [](const auto&) {},
               },
               noted);
  }

  MatrixInputs take() { return std::move(found_); }

 private:
  static MatrixInput whole(Tensor in) { return {.site = in.id, .cols = in.width}; }

  void experts(std::size_t at, const backend::Experts& op) {
    MatrixInput in = whole(op.in);
    in.experts = op.experts;
    in.ids = op.ids.id;
    if (op.weigh_inputs) in.weights = op.weights.id;
    use(op.gate, in);
    use(op.up, in);
    const std::uint32_t chosen = op.ids.width;
    const Tensor hidden = show<backend::Experts>(at, chosen * op.spec.hidden);
    use(op.down, {.site = hidden.id,
                  .cols = op.spec.hidden,
                  .runs = chosen,
                  .experts = op.experts,
                  .ids = op.ids.id});
  }

  /// The operation's hidden rows, as a site of the program from now on.
  template <typename Operation>
  Tensor show(std::size_t at, std::uint32_t width) {
    auto& op = std::get<Operation>(found_.program.operations[at]);
    const std::string& out = found_.program.tensors[std::size_t(op.out.id)].name;
    op.hidden = found_.program.tensor(out + ".hidden", width);
    return op.hidden;
  }

  void use(WeightId weight, const MatrixInput& input) {
    if (weight == backend::kNoWeight) return;
    const weights::WeightRef& ref = notes_[std::size_t(weight)].ref;
    if (ref.view.kind == weights::View::Kind::kTranspose) return;  // its rows are the columns
    auto& inputs = found_.inputs;
    const auto known = std::find(inputs.begin(), inputs.end(), input);
    const MatrixInputs::Use made{
        std::size_t(known - inputs.begin()),
        ref.view.kind == weights::View::Kind::kColumns ? ref.view.begin : 0};
    if (known == inputs.end()) inputs.push_back(input);
    auto& uses = found_.uses[ref.tensor];
    if (std::find(uses.begin(), uses.end(), made) == uses.end()) uses.push_back(made);
  }

  MatrixInputs found_;
  const std::vector<model::WeightNotes::Note>& notes_;
};

}  // namespace

MatrixInputs matrix_inputs(const runtime::LoadedModel& model) {
  model::WeightNotes notes(model.checkpoint());
  const backend::Program noted = model::record(model.plan(), notes);
  LEMMA_CHECK(noted.operations.size() == model.program().operations.size());
  Finder finder(model.program(), notes.notes());
  for (std::size_t i = 0; i < noted.operations.size(); ++i) finder.visit(i, noted.operations[i]);
  return finder.take();
}

}  // namespace lemma::quantize
