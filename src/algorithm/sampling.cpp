// SPDX-License-Identifier: Apache-2.0
#include "algorithm/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

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

struct Weighted {
  std::int32_t id;
  float logit;
  double weight;  ///< exp((logit - largest) / temperature): 1 for the best
};

/// Rank order: logit descending, id ascending.
bool before(const Weighted& a, const Weighted& b) noexcept {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// The items of a set in rank order, sorted only as far as someone looks: a vocabulary has a
/// quarter of a million items, and the walk mostly ends within the first few hundred.
class Ranking {
 public:
  explicit Ranking(std::vector<Weighted>& items) : items_(items) {}

  const Weighted& operator[](std::size_t rank) {
    while (rank >= sorted_) extend();
    return items_[rank];
  }

 private:
  void extend() {
    const std::size_t end = std::min(items_.size(), std::max<std::size_t>(128, 4 * sorted_));
    const auto first = items_.begin() + std::ptrdiff_t(sorted_);
    const auto last = items_.begin() + std::ptrdiff_t(end);
    if (end < items_.size()) std::nth_element(first, last, items_.end(), before);
    std::sort(first, last, before);
    sorted_ = end;
  }

  std::vector<Weighted>& items_;
  std::size_t sorted_ = 0;
};

void check_finite(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < kInfinity)) {
      base::raise(ErrorKind::kNonFinite, "logit of token {} is {}", i, logits[i]);
    }
  }
}

std::size_t index_of(std::int32_t id, std::size_t vocabulary, const char* what) {
  if (id < 0 || std::size_t(id) >= vocabulary) {
    base::raise(ErrorKind::kUsage, "{}: expected token ids from 0 to {}, found {}", what,
                vocabulary - 1, id);
  }
  return std::size_t(id);
}

void apply_penalties(const SamplingSpec& spec, std::span<const std::int32_t> history,
                     std::span<float> logits) {
  if (spec.repetition_penalty == 1.f && spec.presence_penalty == 0.f &&
      spec.frequency_penalty == 0.f) {
    return;
  }
  std::vector<std::uint32_t> counts(logits.size());
  for (const std::int32_t id : history) ++counts[index_of(id, logits.size(), "history")];
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (counts[i] == 0) continue;
    float& logit = logits[i];
    logit = logit > 0.f ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
    logit -= spec.presence_penalty + spec.frequency_penalty * float(counts[i]);
  }
}

/// Bias, penalties and fence, in this order.
std::vector<float> adjusted_logits(const SamplingSpec& spec, std::span<const float> logits,
                                   std::span<const std::int32_t> history,
                                   std::span<const std::uint8_t> fence) {
  std::vector<float> adjusted(logits.begin(), logits.end());
  for (const auto& [id, bias] : spec.logit_bias) {
    adjusted[index_of(id, logits.size(), "logit_bias")] += bias;
  }
  apply_penalties(spec, history, adjusted);
  if (!fence.empty()) {
    for (std::size_t i = 0; i < adjusted.size(); ++i) {
      if (fence[i] == 0) adjusted[i] = -kInfinity;
    }
    // One id left is a forced token: it wins over whatever a bias says of it.
    if (std::count(fence.begin(), fence.end(), 0) + 1 == std::ptrdiff_t(fence.size())) {
      const auto only = std::find_if(fence.begin(), fence.end(), [](auto f) { return f != 0; });
      adjusted[std::size_t(only - fence.begin())] = 0.f;
    }
  }
  check_finite(adjusted);
  return adjusted;
}

/// The first `k` items in rank order, left in id order.
void keep_top_k(std::int64_t k, std::vector<Weighted>& items) {
  if (k <= 0 || std::uint64_t(k) >= items.size()) return;
  std::vector<Weighted> ranked = items;
  const auto last = ranked.begin() + std::ptrdiff_t(k - 1);
  std::nth_element(ranked.begin(), last, ranked.end(), before);
  std::erase_if(items, [&](const Weighted& item) { return before(*last, item); });
}

double weigh(float temperature, float largest, std::vector<Weighted>& items) {
  double mass = 0.0;
  for (Weighted& item : items) {
    item.weight = std::exp((double(item.logit) - double(largest)) / double(temperature));
    mass += item.weight;
  }
  return mass;
}

/// The shortest run of first ranks whose weight reaches `goal`; at least one, at most all.
std::size_t count_reaching(double goal, std::size_t size, Ranking& ranking, double& mass) {
  mass = 0.0;
  for (std::size_t rank = 0; rank < size; ++rank) {
    mass += ranking[rank].weight;
    if (mass >= goal) return rank + 1;
  }
  return size;
}

std::int32_t draw(double goal, std::size_t size, Ranking& ranking) {
  double mass = 0.0;
  std::int32_t last = ranking[0].id;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const Weighted& item = ranking[rank];
    mass += item.weight;
    if (mass > goal) return item.id;
    if (item.weight > 0.0) last = item.id;
  }
  return last;  // rounding of the two sums can leave the goal just out of reach
}

void fill_trace(float temperature, std::size_t size, double mass, Ranking& ranking,
                SamplingTrace* trace) {
  if (!trace) return;
  trace->kept.clear();
  for (std::size_t rank = 0; rank < size; ++rank) {
    const Weighted& item = ranking[rank];
    trace->kept.push_back(
        {item.id, float(double(item.logit) / double(temperature)), float(item.weight / mass)});
  }
}

}  // namespace

void SamplingSpec::validate() const {
  require("temperature", temperature, 0.f, 100.f);
  require("top_p", top_p, 0.f, 1.f);
  require("min_p", min_p, 0.f, 1.f);
  require("repetition_penalty", repetition_penalty, 0.01f, 100.f);
  require("presence_penalty", presence_penalty, -100.f, 100.f);
  require("frequency_penalty", frequency_penalty, -100.f, 100.f);
  for (const auto& [id, bias] : logit_bias) {
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
  check_finite(logits);
  const std::vector<float> adjusted = adjusted_logits(spec, logits, history, fence);
  const auto best = std::max_element(adjusted.begin(), adjusted.end());  // the first of equals
  if (*best == -kInfinity) {
    base::raise(ErrorKind::kUsage, "sampling: all {} tokens are excluded", logits.size());
  }
  if (spec.temperature == 0.f) {
    const auto id = std::int32_t(best - adjusted.begin());
    if (trace) trace->kept.assign(1, {id, *best, 1.f});
    return id;
  }

  std::vector<Weighted> items;
  for (std::size_t i = 0; i < adjusted.size(); ++i) {
    if (adjusted[i] > -kInfinity) items.push_back({std::int32_t(i), adjusted[i], 0.0});
  }
  keep_top_k(spec.top_k, items);
  const double whole = weigh(spec.temperature, *best, items);
  // Both remaining filters keep a run of first ranks, so the longer one may go first.
  std::erase_if(items, [&](const Weighted& item) { return item.weight < double(spec.min_p); });

  Ranking ranking(items);
  std::size_t size = items.size();
  double mass = 0.0;
  if (spec.top_p < 1.f) {
    size = count_reaching(double(spec.top_p) * whole, size, ranking, mass);
  } else {
    for (const Weighted& item : items) mass += item.weight;
  }
  fill_trace(spec.temperature, size, mass, ranking, trace);
  return draw(double(random.uniform()) * mass, size, ranking);
}

double log_probability(std::span<const float> logits, std::int32_t id) {
  LEMMA_CHECK(id >= 0 && std::size_t(id) < logits.size());
  const double largest = double(*std::max_element(logits.begin(), logits.end()));
  double mass = 0.0;
  for (const float logit : logits) mass += std::exp(double(logit) - largest);
  return double(logits[std::size_t(id)]) - largest - std::log(mass);
}

}  // namespace lemma::algorithm
