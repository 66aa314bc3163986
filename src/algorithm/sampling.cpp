// SPDX-License-Identifier: Apache-2.0
#include "algorithm/sampling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::algorithm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Written so that NaN fails.
void require(const char* field, float value, float low, float high) {
  if (!(low <= value && value <= high)) {
    base::raise(ErrorKind::kUsage, "{}: expected a number from {} to {}, found {}", field, low,
                high, value);
  }
}

/// A token as one integer whose ascending order is the rank order: logit descending, then id
/// ascending. The upper half is the logit's bits, mapped so that larger floats are smaller.
std::uint64_t rank_key(float logit, std::size_t id) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.f);  // makes -0 equal to +0
  const std::uint32_t descending = bits >> 31 != 0 ? bits : ~bits & 0x7fffffffu;
  return std::uint64_t(descending) << 32 | id;
}

/// Integers in the order of the floats: -NaN, -infinity, ..., both zeros, ..., infinity, NaN.
/// Unlike comparisons of floats, those of integers can be done several at a time.
std::int32_t ordered(float x) noexcept {
  const auto bits = std::bit_cast<std::int32_t>(x + 0.f);  // makes -0 equal to +0
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

/// The keys of the first `n` ranks among the logits that are not -infinity, in rank order. One pass
/// with a threshold that rises: nearly every run of a large vocabulary has nothing above it.
std::vector<std::uint64_t> first_ranks(std::span<const float> logits, std::size_t n) {
  constexpr std::size_t kRun = 64;
  std::vector<std::uint64_t> keys;
  keys.reserve(std::min(logits.size(), 2 * n));
  std::int32_t threshold = ordered(-kInfinity);
  const auto shrink = [&] {
    if (keys.size() <= n) return;
    std::nth_element(keys.begin(), keys.begin() + std::ptrdiff_t(n - 1), keys.end());
    keys.resize(n);
    threshold = ordered(logits[std::size_t(keys.back() & 0xffffffffu)]);
  };
  for (std::size_t begin = 0; begin < logits.size(); begin += kRun) {
    const std::span<const float> run = logits.subspan(begin, std::min(kRun, logits.size() - begin));
    std::int32_t above = 0;
    for (const float logit : run) above |= ordered(logit) > threshold ? 1 : 0;
    if (above == 0) continue;
    for (std::size_t i = 0; i < run.size(); ++i) {
      // An equal logit of a later id ranks behind the n that are already there.
      if (ordered(run[i]) <= threshold) continue;
      keys.push_back(rank_key(run[i], begin + i));
      if (keys.size() >= 2 * n) shrink();
    }
  }
  shrink();
  std::sort(keys.begin(), keys.end());
  return keys;
}

/// The tokens that may still be chosen, in rank order, sorted only as far as someone looks: the
/// walk through a quarter of a million mostly ends within the first few hundred.
class Ranking {
 public:
  Ranking(std::span<const float> logits, float temperature, float largest) noexcept
      : logits_(logits), temperature_(double(temperature)), largest_(double(largest)) {}

  std::int32_t id(std::size_t rank) {
    if (rank >= keys_.size()) sort_to(std::max<std::size_t>(256, 8 * rank));
    return std::int32_t(keys_[rank] & 0xffffffffu);
  }
  /// The first n ranks, or all if there are fewer.
  std::span<const std::uint64_t> sort_to(std::size_t n) {
    keys_ = first_ranks(logits_, n);
    return keys_;
  }

  /// exp((logit - largest) / temperature): 1 for the best.
  double weight(std::int32_t id) const noexcept {
    return std::exp((double(logits_[std::size_t(id)]) - largest_) / temperature_);
  }

 private:
  std::span<const float> logits_;
  double temperature_, largest_;
  std::vector<std::uint64_t> keys_;
};

/// A set of first ranks: how many and what they weigh. Weights are added in ascending id order.
struct Mass {
  std::size_t count = 0;
  double weight = 0.0;

  void add(double w) noexcept { ++count, weight += w; }
};

/// The first of the largest logits. Throws where one is NaN or +infinity.
std::size_t best_of(std::span<const float> logits) {
  constexpr std::size_t kRun = 4096;
  std::int32_t largest = std::numeric_limits<std::int32_t>::min(), smallest = 0;
  std::size_t run = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kRun) {
    std::int32_t high = std::numeric_limits<std::int32_t>::min(), low = 0;
    for (const float logit : logits.subspan(begin, std::min(kRun, logits.size() - begin))) {
      high = std::max(high, ordered(logit));
      low = std::min(low, ordered(logit));
    }
    smallest = std::min(smallest, low);
    if (high <= largest) continue;
    largest = high;
    run = begin;
  }
  if (largest >= ordered(kInfinity) || smallest < ordered(-kInfinity)) {
    const auto bad = std::find_if_not(logits.begin(), logits.end(),
                                      [](float logit) { return logit < kInfinity; });
    base::raise(ErrorKind::kNonFinite, "logit of token {} is {}", bad - logits.begin(), *bad);
  }
  while (ordered(logits[run]) != largest) ++run;
  return run;
}

std::size_t index_of(std::int32_t id, std::size_t vocabulary, const char* what) {
  if (id < 0 || std::size_t(id) >= vocabulary) {
    base::raise(ErrorKind::kUsage, "{}: expected token ids from 0 to {}, found {}", what,
                vocabulary - 1, id);
  }
  return std::size_t(id);
}

bool penalizes(const SamplingSpec& spec) noexcept {
  return spec.repetition_penalty != 1.f || spec.presence_penalty != 0.f ||
         spec.frequency_penalty != 0.f;
}

void apply_penalties(const SamplingSpec& spec, std::span<const std::int32_t> history,
                     std::span<float> logits) {
  if (!penalizes(spec)) return;
  for (const std::int32_t id : history) index_of(id, logits.size(), "history");
  thread_local std::vector<std::uint32_t> counts;  // zeros between the calls
  if (counts.size() < logits.size()) counts.resize(logits.size());
  for (const std::int32_t id : history) ++counts[std::size_t(id)];
  for (const std::int32_t id : history) {
    const std::uint32_t count = std::exchange(counts[std::size_t(id)], 0);
    if (count == 0) continue;
    float& logit = logits[std::size_t(id)];
    logit = logit > 0.f ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
    logit -= spec.presence_penalty + spec.frequency_penalty * float(count);
  }
}

/// Bias, penalties and fence, in this order. The result lives until the thread's next call.
std::span<const float> adjusted_logits(const SamplingSpec& spec, std::span<const float> logits,
                                       std::span<const std::int32_t> history,
                                       std::span<const std::uint8_t> fence) {
  if (spec.logit_bias.empty() && !penalizes(spec) && fence.empty()) return logits;
  thread_local std::vector<float> adjusted;
  adjusted.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : spec.logit_bias) {
    adjusted[index_of(id, logits.size(), "logit_bias")] += bias;
  }
  apply_penalties(spec, history, adjusted);
  if (!fence.empty()) {
    for (std::size_t i = 0; i < adjusted.size(); ++i) {
      adjusted[i] = fence[i] == 0 ? -kInfinity : adjusted[i];
    }
    // One id left is a forced token: it wins over whatever a bias says of it.
    if (std::count(fence.begin(), fence.end(), 0) + 1 == std::ptrdiff_t(fence.size())) {
      const auto only = std::find_if(fence.begin(), fence.end(), [](auto f) { return f != 0; });
      adjusted[std::size_t(only - fence.begin())] = 0.f;
    }
  }
  return adjusted;
}

/// What top-k leaves, whole and without the tokens that min-p drops.
struct Masses {
  Mass whole, above_min_p;
};

Masses weigh(const SamplingSpec& spec, std::span<const float> logits, Ranking& ranking) {
  Masses masses;
  const auto add = [&](std::int32_t id) {
    const double weight = ranking.weight(id);
    masses.whole.add(weight);
    if (weight >= double(spec.min_p)) masses.above_min_p.add(weight);
  };
  if (spec.top_k > 0 && std::uint64_t(spec.top_k) < logits.size()) {
    std::vector<std::int32_t> ids;
    for (const std::uint64_t key : ranking.sort_to(std::size_t(spec.top_k))) {
      ids.push_back(std::int32_t(key & 0xffffffffu));
    }
    std::sort(ids.begin(), ids.end());
    for (const std::int32_t id : ids) add(id);
  } else {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > -kInfinity) add(std::int32_t(i));
    }
  }
  return masses;
}

/// The shortest run of first ranks whose weight, added in rank order, reaches `goal`; at least one
/// and at most `limit`.
Mass first_reaching(double goal, std::size_t limit, Ranking& ranking) {
  Mass mass;
  while (mass.count < limit && (mass.count == 0 || mass.weight < goal)) {
    mass.add(ranking.weight(ranking.id(mass.count)));
  }
  return mass;
}

std::int32_t draw(double goal, std::size_t count, Ranking& ranking) {
  double mass = 0.0;
  std::int32_t last = ranking.id(0);
  for (std::size_t rank = 0; rank < count; ++rank) {
    const std::int32_t id = ranking.id(rank);
    const double weight = ranking.weight(id);
    mass += weight;
    if (mass > goal) return id;
    if (weight > 0.0) last = id;
  }
  return last;  // rounding of the two sums can leave the goal just out of reach
}

}  // namespace

void validate(const SamplingSpec& spec) {
  require("temperature", spec.temperature, 0.f, 100.f);
  require("top_p", spec.top_p, 0.f, 1.f);
  require("min_p", spec.min_p, 0.f, 1.f);
  require("repetition_penalty", spec.repetition_penalty, 0.01f, 100.f);
  require("presence_penalty", spec.presence_penalty, -100.f, 100.f);
  require("frequency_penalty", spec.frequency_penalty, -100.f, 100.f);
  for (const auto& [id, bias] : spec.logit_bias) {
    if (id < 0) base::raise(ErrorKind::kUsage, "logit_bias: expected token ids >= 0, found {}", id);
    if (!(bias < kInfinity)) {
      base::raise(ErrorKind::kUsage,
                  "logit_bias of token {}: expected a finite number or -infinity, found {}", id,
                  bias);
    }
  }
}

Random::Random(std::uint64_t seed) noexcept : state_(seed != 0 ? seed : 0x9e3779b97f4a7c15u) {}

std::uint64_t Random::next() noexcept {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return state_ * 0x2545f4914f6cdd1du;
}

float Random::uniform() noexcept {
  return float(next() >> 40) * 0x1p-24f;
}

std::int32_t sample(const SamplingSpec& spec, std::span<const float> logits,
                    std::span<const std::int32_t> history, std::span<const std::uint8_t> fence,
                    Random& random, SamplingTrace* trace) {
  LEMMA_CHECK(!logits.empty());
  LEMMA_CHECK(logits.size() <= std::size_t(std::numeric_limits<std::int32_t>::max()));
  LEMMA_CHECK(fence.empty() || fence.size() == logits.size());
  std::size_t best = best_of(logits);
  const std::span<const float> adjusted = adjusted_logits(spec, logits, history, fence);
  if (adjusted.data() != logits.data()) best = best_of(adjusted);
  if (adjusted[best] == -kInfinity) {
    base::raise(ErrorKind::kUsage, "sampling: all {} tokens are excluded", logits.size());
  }
  if (spec.temperature == 0.f) {
    if (trace) trace->kept.assign(1, {std::int32_t(best), adjusted[best], 1.f});
    return std::int32_t(best);
  }

  Ranking ranking(adjusted, spec.temperature, adjusted[best]);
  const Masses masses = weigh(spec, adjusted, ranking);
  // Top-p and min-p both keep a run of first ranks, so the shorter run is what both leave.
  Mass kept = masses.above_min_p;
  if (spec.top_p < 1.f) {
    kept = first_reaching(double(spec.top_p) * masses.whole.weight, kept.count, ranking);
  }
  if (trace) {
    trace->kept.clear();
    for (std::size_t rank = 0; rank < kept.count; ++rank) {
      const std::int32_t id = ranking.id(rank);
      const double logit = double(adjusted[std::size_t(id)]) / double(spec.temperature);
      trace->kept.push_back({id, float(logit), float(ranking.weight(id) / kept.weight)});
    }
  }
  return draw(double(random.uniform()) * kept.weight, kept.count, ranking);
}

double log_probability(std::span<const float> logits, std::int32_t id) {
  LEMMA_CHECK(id >= 0 && std::size_t(id) < logits.size());
  const double largest = double(*std::max_element(logits.begin(), logits.end()));
  double mass = 0.0;
  for (const float logit : logits) mass += std::exp(double(logit) - largest);
  return double(logits[std::size_t(id)]) - largest - std::log(mass);
}

}  // namespace lemma::algorithm
