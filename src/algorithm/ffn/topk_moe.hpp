// SPDX-License-Identifier: Apache-2.0
// The mixture of experts: a row's chosen experts summed by weight in ascending expert id, whatever
// order they were ranked or computed in, and experts that every row has beside them. The order
// makes a row's bits independent of its company. This file owns the spec and the sums; who runs an
// expert is the caller's. Formulas: docs/contract.md, "Mixture of experts".
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/ffn/routing.hpp"
#include "base/function_ref.hpp"

namespace lemma::algorithm {

struct MoeSpec {
  RoutingSpec routing;
  MlpSpec expert;
  /// The weight multiplies an expert's input instead of its output (Llama 4): not the same, for an
  /// expert is not linear.
  bool weigh_inputs = false;
  /// Experts of every row as one block of their summed width; unset: none. Its activation is its
  /// own: some models clamp only one of the two.
  std::optional<MlpSpec> shared;
  bool shared_gate = false;  ///< what is shared is multiplied by sigmoid(x . w)

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  friend bool operator==(const MoeSpec&, const MoeSpec&) = default;
};

/// Runs expert `expert` on one row: `x` [D] into `y` [D].
using ExpertFunction =
    base::FunctionRef<void(std::uint32_t expert, std::span<const float> x, std::span<float> y)>;

/// out [D] = sum over the chosen experts, ascending id, of weight * expert(x), for one row with
/// distinct `ids` [k] in any order. `scratch` [2 D].
void combine_experts(const MoeSpec& spec, std::span<const float> x,
                     std::span<const std::uint32_t> ids, std::span<const float> weights,
                     ExpertFunction expert, std::span<float> scratch,
                     std::span<float> out) noexcept;

/// The same for many rows, expert by expert: `x` and `out` [T, D], routes as group_routes() gives
/// them. Experts without rows are not run. The bits are those of row by row.
void combine_groups(const MoeSpec& spec, std::span<const float> x, const RouteGroups& groups,
                    ExpertFunction expert, std::span<float> scratch, std::span<float> out) noexcept;

/// out += shared, or sigmoid(gate) * shared where `gate` (the row's gate logit) is given.
void add_shared(std::span<const float> shared, const float* gate, std::span<float> out) noexcept;

}  // namespace lemma::algorithm
