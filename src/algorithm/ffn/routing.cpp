// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/routing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithm/attention/require.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/topk.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "routing";
constexpr float kNever = -std::numeric_limits<float>::infinity();

bool is_softmax(RouteScore score) noexcept {
  return score == RouteScore::kSoftmax || score == RouteScore::kSoftmaxOverChosen;
}

/// Softmax in place, summed in the order given. Weights of -infinity become 0.
void softmax(std::span<float> x) noexcept {
  const float largest = *std::max_element(x.begin(), x.end());
  float mass = 0.f;
  for (float& value : x) {
    value = std::exp(value - largest);
    mass += value;
  }
  for (float& value : x) value /= mass;
}

/// What weighs an expert, before normalising.
void score(RouteScore kind, std::span<const float> logits, std::span<float> scores) noexcept {
  std::copy(logits.begin(), logits.end(), scores.begin());
  if (kind == RouteScore::kSoftmax) softmax(scores);
  if (kind == RouteScore::kSigmoid) {
    for (float& s : scores) s = sigmoid(s);
  }
  if (kind == RouteScore::kSqrtSoftplus) {
    for (float& s : scores) s = std::sqrt(softplus(s));
  }
}

/// The sum of the one or two largest.
float group_score(std::span<const float> keys, std::uint32_t best) noexcept {
  float first = kNever, second = kNever;
  for (const float key : keys) {
    if (key > first) {
      second = first;
      first = key;
    } else {
      second = std::max(second, key);
    }
  }
  return best == 1 ? first : first + second;
}

/// Takes the experts of all but the best groups out of the running. Ties go to the lower group.
void drop_groups(const RoutingSpec& spec, std::span<float> keys, std::span<float> scores) noexcept {
  const std::size_t size = spec.experts / spec.groups;
  for (std::size_t g = 0; g < spec.groups; ++g) {
    scores[g] = group_score(keys.subspan(g * size, size), spec.group_best);
  }
  for (std::size_t g = 0; g < spec.groups; ++g) {
    std::size_t better = 0;
    for (std::size_t h = 0; h < spec.groups; ++h) {
      better += scores[h] > scores[g] || (scores[h] == scores[g] && h < g) ? 1 : 0;
    }
    if (better < spec.kept_groups) continue;
    const std::span<float> dropped = keys.subspan(g * size, size);
    std::fill(dropped.begin(), dropped.end(), kNever);
  }
}

/// The k experts of largest key. Scores of a softmax are compared as logits, which rank alike but
/// do not underflow, unless something is added to them.
bool choose(const RoutingSpec& spec, const RouteInputs& inputs, std::span<const float> scores,
            std::span<float> keys, std::span<float> groups, std::span<std::uint32_t> ids) noexcept {
  const bool by_logit = is_softmax(spec.score) && !spec.correction && spec.groups == 1;
  for (std::size_t e = 0; e < keys.size(); ++e) {
    const float logit = inputs.logits[e];
    keys[e] = by_logit ? logit : scores[e];
    if (spec.correction) keys[e] += inputs.correction[e];
    if (logit == kNever) keys[e] = kNever;
  }
  if (!comparable(keys)) return false;
  if (spec.groups > 1) drop_groups(spec, keys, groups);
  const auto found = topk(keys, ids.size(), TopkOrder::kRank, ids);
  return found && *found == ids.size();
}

void normalise(const RoutingSpec& spec, std::span<float> weights) noexcept {
  float sum = 0.f;
  for (const float weight : weights) sum += weight;
  const float divisor = std::max(sum + spec.sum_eps, spec.sum_floor);
  for (float& weight : weights) weight /= divisor;
}

}  // namespace

void RoutingSpec::validate() const {
  require(experts > 0 && experts <= 65536, kSpec, "experts", "1 to 65536", experts);
  require(chosen > 0 && chosen <= experts, kSpec, "chosen", "1 to the number of experts", chosen);
  require(groups > 0 && experts % groups == 0, kSpec, "groups", "a divisor of the experts", groups);
  require(kept_groups > 0 && kept_groups <= groups &&
              std::uint64_t(kept_groups) * (experts / groups) >= chosen,
          kSpec, "kept groups", "at most all groups, and enough for the chosen experts",
          kept_groups);
  require(group_best == 1 || group_best == 2, kSpec, "group best", "1 or 2", group_best);
  require(groups == 1 || experts / groups >= group_best, kSpec, "group best",
          "at most the experts of a group", group_best);
  require(!hashed || (groups == 1 && !correction), kSpec, "hashed",
          "no groups and no correction beside a table", hashed);
  require(groups == 1 || score != RouteScore::kSoftmaxOverChosen, kSpec, "groups",
          "1 where weights are a softmax over the chosen", groups);
  require(std::isfinite(sum_eps) && sum_eps >= 0.f && (normalize || sum_eps == 0.f), kSpec,
          "sum eps", "a finite number >= 0, and 0 without normalising", sum_eps);
  require(std::isfinite(sum_floor) && sum_floor >= 0.f && (normalize || sum_floor == 0.f), kSpec,
          "sum floor", "a finite number >= 0, and 0 without normalising", sum_floor);
  require(is_positive(scale), kSpec, "scale", "a finite number > 0", scale);
}

bool route(const RoutingSpec& spec, const RouteInputs& inputs, std::span<float> scratch,
           std::span<std::uint32_t> ids, std::span<float> weights) noexcept {
  const std::size_t n = spec.experts, k = spec.chosen;
  LEMMA_CHECK(scratch.size() == spec.scratch_size() && ids.size() == k && weights.size() == k);
  LEMMA_CHECK(inputs.logits.size() == n && inputs.correction.size() == (spec.correction ? n : 0));
  LEMMA_CHECK(inputs.expert_scale.size() == (spec.scale_per_expert ? n : 0));
  LEMMA_CHECK(inputs.hashed_ids.size() == (spec.hashed ? k : 0));
  const std::span<float> scores = scratch.first(n), keys = scratch.subspan(n, n);
  if (!comparable(inputs.logits)) return false;
  if (std::find_if(inputs.logits.begin(), inputs.logits.end(),
                   [](float l) { return l != kNever; }) == inputs.logits.end()) {
    return false;
  }
  score(spec.score, inputs.logits, scores);
  if (spec.hashed) {
    std::copy(inputs.hashed_ids.begin(), inputs.hashed_ids.end(), ids.begin());
  } else if (!choose(spec, inputs, scores, keys, scratch.subspan(2 * n), ids)) {
    return false;
  }
  for (std::size_t i = 0; i < k; ++i) weights[i] = scores[ids[i]];
  if (spec.score == RouteScore::kSoftmaxOverChosen) softmax(weights);
  if (spec.normalize) normalise(spec, weights);
  bool finite = true;
  for (std::size_t i = 0; i < k; ++i) {
    weights[i] *= spec.scale;
    if (spec.scale_per_expert) weights[i] *= inputs.expert_scale[ids[i]];
    finite = finite && std::isfinite(weights[i]);
  }
  return finite;
}

void validate_hash_table(const RoutingSpec& spec, std::span<const std::uint32_t> table) {
  const std::size_t k = spec.chosen;
  if (table.size() % k != 0) {
    base::raise(ErrorKind::kBadFile, "routing table: expected rows of {} experts, found {} entries",
                k, table.size());
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::size_t token = i / k;
    if (table[i] >= spec.experts) {
      base::raise(ErrorKind::kBadFile,
                  "routing table, token {}: expected experts below {}, found {}", token,
                  spec.experts, table[i]);
    }
    const auto row = table.subspan(token * k, i - token * k);
    if (std::find(row.begin(), row.end(), table[i]) != row.end()) {
      base::raise(ErrorKind::kBadFile,
                  "routing table, token {}: expected distinct experts, found {} twice", token,
                  table[i]);
    }
  }
}

void group_routes(std::uint32_t experts, std::uint32_t chosen, std::span<const std::uint32_t> ids,
                  std::span<const float> weights, const RouteGroups& groups) noexcept {
  LEMMA_CHECK(weights.size() == ids.size() && groups.rows.size() == ids.size());
  LEMMA_CHECK(groups.weights.size() == ids.size() && groups.offsets.size() == experts + 1u);
  LEMMA_CHECK(ids.size() <= std::numeric_limits<std::uint32_t>::max());
  const std::span<std::uint32_t> offsets = groups.offsets;
  std::fill(offsets.begin(), offsets.end(), 0);
  for (const std::uint32_t id : ids) {
    LEMMA_CHECK(id < experts);
    ++offsets[id + 1];
  }
  for (std::size_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  // offsets[e] runs from its group's begin to its end, and so comes to stand one place too far.
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint32_t entry = offsets[ids[i]]++;
    groups.rows[entry] = std::uint32_t(i / chosen);
    groups.weights[entry] = weights[i];
  }
  for (std::size_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

}  // namespace lemma::algorithm
