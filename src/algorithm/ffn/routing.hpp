// SPDX-License-Identifier: Apache-2.0
// Routing: which experts a row goes to and with what weights, from the router's logits. Every rule
// that models use is a field: what scores, what is added for the choice alone, groups, a table by
// token id, how the chosen weights are normalised and scaled. The router's product, and the norm
// before it where a model has one, are other operations. Formulas: docs/contract.md, "Routing".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lemma::algorithm {

enum class RouteScore : std::uint8_t {
  kSoftmax,            ///< over all experts
  kSoftmaxOverChosen,  ///< over the logits of the chosen ones
  kSigmoid,
  kSqrtSoftplus,  ///< sqrt(log(1 + exp(l)))
};

struct RoutingSpec {
  std::uint32_t experts = 0;  ///< E
  std::uint32_t chosen = 0;   ///< k
  RouteScore score = RouteScore::kSoftmax;
  bool correction = false;        ///< a learned bias joins the scores for the choice alone
  bool hashed = false;            ///< a table by token id chooses, scores only weigh
  std::uint32_t groups = 1;       ///< consecutive experts of which only some groups compete
  std::uint32_t kept_groups = 1;  ///< the best of them
  std::uint32_t group_best = 2;   ///< a group's score: the sum of its so many best, 1 or 2
  bool normalize = false;         ///< chosen weights are divided by their sum s, as
  float sum_eps = 0.f;            ///<   max(s + sum_eps, sum_floor)
  float sum_floor = 0.f;          ///<
  float scale = 1.f;              ///< after normalising
  bool scale_per_expert = false;  ///< a learned factor per expert, last

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  /// Floats of scratch: scores, keys of the choice, scores of groups.
  std::size_t scratch_size() const noexcept { return 2 * std::size_t(experts) + groups; }
  friend bool operator==(const RoutingSpec&, const RoutingSpec&) = default;
};

/// What one row is routed by; empty where the spec has none.
struct RouteInputs {
  std::span<const float> logits;              ///< [E], a router's bias included
  std::span<const float> correction;          ///< [E]
  std::span<const float> expert_scale;        ///< [E]
  std::span<const std::uint32_t> hashed_ids;  ///< [k]: the table's row of this token
};

/// Chooses k experts into `ids` [k], best first (in a table's order if hashed), and weighs them in
/// `weights` [k]. An expert with logit -infinity is never chosen. Returns false, with both
/// unspecified, for NaN or +infinity among the inputs, fewer than k candidates, or weights that
/// are not finite. Allocates nothing.
[[nodiscard]] bool route(const RoutingSpec& spec, const RouteInputs& inputs,
                         std::span<float> scratch, std::span<std::uint32_t> ids,
                         std::span<float> weights) noexcept;

/// Checks a table [vocabulary, k] of experts by token id: ids below E, distinct within a row.
/// Throws kBadFile naming the token and what was found.
void validate_hash_table(const RoutingSpec& spec, std::span<const std::uint32_t> table);

/// The routes of many rows, turned round: for expert e the entries [offsets[e], offsets[e + 1]),
/// in order of row and then of slot. Spans of the caller: [E + 1], [T k], [T k].
struct RouteGroups {
  std::span<std::uint32_t> offsets, rows;
  std::span<float> weights;
};

/// Fills `groups` from `ids` and `weights`, [T, k] each, every id below E.
void group_routes(std::uint32_t experts, std::uint32_t chosen, std::span<const std::uint32_t> ids,
                  std::span<const float> weights, const RouteGroups& groups) noexcept;

}  // namespace lemma::algorithm
