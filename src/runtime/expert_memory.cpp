// SPDX-License-Identifier: Apache-2.0
#include "runtime/expert_memory.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <variant>

#include "backend/cpu/cpu_backend.hpp"
#include "base/available_memory.hpp"
#include "model/decoder.hpp"
#include "model/plan_cost.hpp"
#include "model/weight_binder.hpp"

namespace lemma::runtime {
namespace {

/// Of what the system has, the part that is left for everything else.
constexpr std::uint64_t kSpareParts = 16;

std::uint64_t budget_of(const LoadOptions& options) {
  if (options.memory > 0) return options.memory;
  const std::uint64_t available = base::available_memory();
  return available - available / kSpareParts;
}

/// The weights of the program's experts, as they are numbered.
std::set<backend::WeightId> experts_of(const backend::Program& program) {
  std::set<backend::WeightId> ids;
  for (const backend::Operation& operation : program.operations) {
    if (const auto* const op = std::get_if<backend::Experts>(&operation)) {
      for (const backend::WeightId id : {op->gate, op->up, op->down})
        if (id != backend::kNoWeight) ids.insert(id);
    }
  }
  return ids;
}

}  // namespace

ExpertPlacement place_experts(const model::Plan& plan, const weights::Checkpoint& checkpoint,
                              std::uint32_t context, const LoadOptions& options) {
  model::WeightNotes notes(checkpoint);
  const std::set<backend::WeightId> experts = experts_of(model::record(plan, notes));
  if (experts.empty()) return {};
  const auto numerics = options.numerics == NumericsMode::kStrict ? backend::Numerics::kStrict
                                                                  : backend::Numerics::kFast;
  const auto packed = [&](const model::WeightNotes::Note& note) -> std::uint64_t {
    if (note.use != backend::WeightUse::kMatrix) return note.rows * note.cols * sizeof(float);
    return cpu::packed_bytes(checkpoint.at(note.ref.tensor).format, note.rows, note.cols, numerics);
  };
  const model::Cost cost = model::cost_of(plan, checkpoint, {.context = context});
  std::uint64_t needed = cost.state_bytes * options.sequences + cost.scratch_bytes;
  for (std::size_t id = 0; id < notes.notes().size(); ++id) {
    const model::WeightNotes::Note& note = notes.notes()[id];
    const bool looked_up = note.use == backend::WeightUse::kTable;
    if (!looked_up && experts.count(static_cast<backend::WeightId>(id)) == 0)
      needed += packed(note);
  }
  const std::uint64_t budget = budget_of(options);
  std::map<std::string, bool> stays;  // a tensor's parts go together
  ExpertPlacement placement;
  for (const backend::WeightId id : experts) {
    const model::WeightNotes::Note& note = notes.notes()[static_cast<std::size_t>(id)];
    const auto [place, first] = stays.emplace(note.ref.tensor, needed + packed(note) > budget);
    if (!place->second) needed += packed(note);
    if (!place->second || !first) continue;
    placement.in_file.push_back(note.ref.tensor);
    placement.bytes += checkpoint.at(note.ref.tensor).size_bytes();
  }
  std::sort(placement.in_file.begin(), placement.in_file.end());
  return placement;
}

}  // namespace lemma::runtime
