// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/number_range.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

namespace lemma::text::constraint {
namespace {

using regex::CharSet;

constexpr std::int64_t kMostInteger = 999'999'999'999'999'999;  // 18 digits
constexpr std::size_t kWholeDigits = 15, kFractionDigits = 16;
/// Of a number within bounds: what a double tells apart from its bounds.
constexpr std::size_t kExactDigits = 15;

Expression digit(char first, char last) {
  return one_of(CharSet{{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

/// Largest integer not above the value, and whether it is the value; beyond 18 digits, the limit.
std::pair<std::int64_t, bool> floor_of(const Decimal& value) {
  const bool fraction = value.fraction.find_first_not_of('0') != std::string::npos;
  if (value.whole.size() > 18) return {value.negative ? -kMostInteger - 1 : kMostInteger, false};
  const std::int64_t whole =
      value.whole.empty() ? 0 : std::strtoll(value.whole.c_str(), nullptr, 10);
  if (!value.negative) return {whole, !fraction};
  return {fraction ? -whole - 1 : -whole, !fraction};
}

/// Digits of [low, high], both at least 0, that are multiples of a step.
class IntegerGraph {
 public:
  explicit IntegerGraph(std::int64_t step) : step_(step) {}

  /// Adds the magnitudes [low, high] behind node `from`.
  void add(std::uint32_t from, std::int64_t low, std::int64_t high) {
    std::int64_t first = 0;  // of this length
    std::int64_t last = 9;
    for (std::size_t length = 1; length <= 18 && first <= high; ++length) {
      const std::int64_t a = std::max(low, first);
      const std::int64_t b = std::min(high, last);
      if (a <= b) add_length(from, length, a, b);
      first = last + 1;
      last = std::min(last, kMostInteger / 10) * 10 + 9;
    }
  }
  GraphBuilder& graph() { return graph_; }
  Expression take() { return graph_.take(); }

 private:
  struct Place {
    std::uint32_t node;
    bool at_low, at_high;
    std::int64_t rest;
  };

  void add_length(std::uint32_t from, std::size_t length, std::int64_t a, std::int64_t b) {
    const std::string low = padded(a, length);
    const std::string high = padded(b, length);
    std::vector<Place> places = {{from, true, true, 0}};
    for (std::size_t i = 0; i < length; ++i) {
      std::map<std::tuple<bool, bool, std::int64_t>, std::uint32_t> made;
      std::vector<Place> next;
      for (const Place& place : places) {
        const char least = place.at_low ? low[i] : '0';
        const char most = place.at_high ? high[i] : '9';
        for (char d = least; d <= most; ++d) {
          const bool at_low = place.at_low && d == low[i];
          const bool at_high = place.at_high && d == high[i];
          const std::int64_t rest = (10 * place.rest + (d - '0')) % step_;
          if (!at_low && !at_high) {
            graph_.edge(place.node, free(length - i - 1, rest), digit_label(d));
            continue;
          }
          const auto [at, fresh] = made.try_emplace({at_low, at_high, rest}, 0);
          if (fresh) {
            at->second = i + 1 < length ? graph_.node() : end_of(rest);
            next.push_back({at->second, at_low, at_high, rest});
          }
          graph_.edge(place.node, at->second, digit_label(d));
        }
      }
      places = std::move(next);
    }
  }

  static std::string padded(std::int64_t value, std::size_t length) {
    const std::string digits = std::to_string(value);
    return std::string(length - digits.size(), '0') + digits;
  }

  std::uint32_t end_of(std::int64_t rest) {
    return rest == 0 ? GraphBuilder::kEnd : graph_.node();  // the latter leads nowhere
  }

  /// `digits` more digits of any kind.
  std::uint32_t free(std::size_t digits, std::int64_t rest) {
    if (digits == 0) return end_of(rest);
    const auto [at, fresh] = free_.try_emplace({digits, rest}, 0);
    if (!fresh) return at->second;
    const std::uint32_t node = at->second = graph_.node();
    if (step_ == 1) {
      graph_.edge(node, free(digits - 1, 0), digit('0', '9'));
      return node;
    }
    for (char d = '0'; d <= '9'; ++d)
      graph_.edge(node, free(digits - 1, (10 * rest + (d - '0')) % step_), digit_label(d));
    return node;
  }

  std::uint32_t digit_label(char d) {
    std::uint32_t& label = labels_[static_cast<std::size_t>(d - '0')];
    if (label == 0) label = 1 + graph_.add(digit(d, d));
    return label - 1;
  }

  const std::int64_t step_;
  GraphBuilder graph_;
  std::map<std::pair<std::size_t, std::int64_t>, std::uint32_t> free_;
  std::array<std::uint32_t, 10> labels_{};
};

/// Magnitudes between two decimals, digit by digit.
class DecimalGraph {
 public:
  DecimalGraph() = default;

  void add(std::uint32_t from, const Bound& low, const std::optional<Bound>& high) {
    low_ = low;
    high_ = high;
    const std::size_t least = std::max<std::size_t>(1, low.value.whole.size());
    const std::size_t most =
        high ? std::min(kWholeDigits, std::max<std::size_t>(1, high->value.whole.size()))
             : kWholeDigits;
    fractions_.clear();
    for (std::size_t length = least; length <= most; ++length) add_length(from, length);
  }
  GraphBuilder& graph() { return graph_; }
  Expression take() { return graph_.take(); }

 private:
  using Tight = std::pair<bool, bool>;  // at the low, at the high bound so far

  static std::string padded(const Decimal& value, std::size_t length) {
    return std::string(length - std::min(length, value.whole.size()), '0') + value.whole;
  }

  void add_length(std::uint32_t from, std::size_t length) {
    const bool low_tight = std::max<std::size_t>(1, low_.value.whole.size()) == length;
    const bool high_tight = high_ && std::max<std::size_t>(1, high_->value.whole.size()) == length;
    const std::string low = low_tight ? padded(low_.value, length) : std::string(length, '0');
    const std::string high = high_tight ? padded(high_->value, length) : std::string(length, '9');
    std::map<Tight, std::uint32_t> places = {{{low_tight, high_tight}, from}};
    for (std::size_t i = 0; i < length; ++i) {
      std::map<Tight, std::uint32_t> next;
      for (const auto& [tight, node] : places) {
        for (char d = i == 0 && length > 1 ? '1' : '0'; d <= '9'; ++d) {
          if ((tight.first && d < low[i]) || (tight.second && d > high[i])) continue;
          const Tight now = {tight.first && d == low[i], tight.second && d == high[i]};
          const auto [at, fresh] = next.try_emplace(now, 0);
          if (fresh) at->second = graph_.node();
          graph_.edge(node, at->second, digit(d, d));
        }
      }
      places = std::move(next);
    }
    for (const auto& [tight, node] : places) {
      if (may_stop(tight, 0)) graph_.silent(node, GraphBuilder::kEnd);
      if (length < kExactDigits)
        graph_.edge(node, fraction(0, kExactDigits - length, tight), literal("."));
    }
  }

  static bool rest_is_zero(const std::string& digits, std::size_t from) {
    return digits.find_first_not_of('0', std::min(from, digits.size())) == std::string::npos;
  }
  /// With `done` digits behind the point.
  bool may_stop(const Tight& tight, std::size_t done) const {
    if (tight.first && (low_.exclusive || !rest_is_zero(low_.value.fraction, done))) return false;
    return !(tight.second && high_->exclusive && rest_is_zero(high_->value.fraction, done));
  }

  /// Behind the point and `done` of at most `most` digits.
  std::uint32_t fraction(std::size_t done, std::size_t most, const Tight& tight) {
    const auto [at, fresh] = fractions_.try_emplace({done, most, tight}, 0);
    if (!fresh) return at->second;
    const std::uint32_t node = at->second = graph_.node();
    if (done > 0 && may_stop(tight, done)) graph_.silent(node, GraphBuilder::kEnd);
    if (done == most) return node;
    const auto at_place = [done](const std::string& digits) {
      return done < digits.size() ? digits[done] : '0';
    };
    const char low = tight.first ? at_place(low_.value.fraction) : '0';
    const char high = tight.second ? at_place(high_->value.fraction) : '9';
    for (char d = low; d <= high; ++d) {
      const Tight now = {tight.first && d == low, tight.second && d == high};
      graph_.edge(node, fraction(done + 1, most, now), digit(d, d));
    }
    return node;
  }

  GraphBuilder graph_;
  Bound low_;
  std::optional<Bound> high_;
  std::map<std::tuple<std::size_t, std::size_t, Tight>, std::uint32_t> fractions_;
};

Bound negated(Bound bound) {
  bound.value.negative = !bound.value.negative && !bound.value.is_zero();
  return bound;
}

const Bound kZero = {{}, false};
const Bound kAboveZero = {{}, true};

}  // namespace

bool Decimal::is_zero() const noexcept {
  return whole.empty() && fraction.find_first_not_of('0') == std::string::npos;
}

Decimal decimal_of(const std::string& number) {
  Decimal made;
  std::size_t at = 0;
  if (number[0] == '-') {
    made.negative = true;
    at = 1;
  }
  std::string digits;
  long point = -1;
  for (; at < number.size() && number[at] != 'e' && number[at] != 'E'; ++at) {
    if (number[at] == '.') {
      point = static_cast<long>(digits.size());
    } else {
      digits += number[at];
    }
  }
  if (point < 0) point = static_cast<long>(digits.size());
  if (at < number.size())
    point += std::clamp(std::strtol(number.c_str() + at + 1, nullptr, 10), -2000L, 2000L);
  if (point < 0) digits.insert(0, static_cast<std::size_t>(-point), '0');
  const auto split = static_cast<std::size_t>(std::max(point, 0L));
  if (split > digits.size()) digits.resize(split, '0');
  made.whole = digits.substr(0, split);
  made.whole.erase(0, std::min(made.whole.find_first_not_of('0'), made.whole.size()));
  made.fraction = digits.substr(split);
  if (made.is_zero()) made.negative = false;
  return made;
}

bool less(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative;
  const Decimal& x = a.negative ? b : a;  // magnitudes
  const Decimal& y = a.negative ? a : b;
  if (x.whole.size() != y.whole.size()) return x.whole.size() < y.whole.size();
  if (x.whole != y.whole) return x.whole < y.whole;
  const std::size_t length = std::max(x.fraction.size(), y.fraction.size());
  const auto padded = [length](std::string s) {
    s.resize(length, '0');
    return s;
  };
  return padded(x.fraction) < padded(y.fraction);
}

void tighten_least(std::optional<Bound>& bound, Bound other) {
  const bool tighter = !bound || less(bound->value, other.value) ||
                       (!less(other.value, bound->value) && other.exclusive);
  if (tighter) bound = std::move(other);
}

void tighten_most(std::optional<Bound>& bound, Bound other) {
  const bool tighter = !bound || less(other.value, bound->value) ||
                       (!less(bound->value, other.value) && other.exclusive);
  if (tighter) bound = std::move(other);
}

bool admits(const NumberBounds& bounds, const Decimal& value) {
  if (bounds.least && (bounds.least->exclusive ? !less(bounds.least->value, value)
                                               : less(value, bounds.least->value)))
    return false;
  return !(bounds.most && (bounds.most->exclusive ? !less(value, bounds.most->value)
                                                  : less(bounds.most->value, value)));
}

Expression integers(const NumberBounds& bounds, std::int64_t step) {
  std::int64_t low = -kMostInteger;
  std::int64_t high = kMostInteger;
  if (bounds.least) {
    const auto [floor, exact] = floor_of(bounds.least->value);
    low = std::max(low, exact && !bounds.least->exclusive ? floor : floor + 1);
  }
  if (bounds.most) {
    const auto [floor, exact] = floor_of(bounds.most->value);
    high = std::min(high, exact && bounds.most->exclusive ? floor - 1 : floor);
  }
  IntegerGraph graph(step);
  if (low < 0 && low <= high) {
    const std::uint32_t minus = graph.graph().node();
    graph.graph().edge(GraphBuilder::kStart, minus, literal("-"));
    graph.add(minus, std::max<std::int64_t>(1, -high), -low);
  }
  if (high >= 0 && low <= high)
    graph.add(GraphBuilder::kStart, std::max<std::int64_t>(0, low), high);
  return graph.take();
}

Expression numbers(const NumberBounds& bounds) {
  if (!bounds.least && !bounds.most) {
    const auto digits = [](std::uint32_t least, std::size_t most) {
      return repeat(digit('0', '9'), least, static_cast<std::uint32_t>(most));
    };
    std::vector<Expression> whole;
    whole.push_back(literal("0"));
    whole.push_back(sequence({digit('1', '9'), digits(0, kWholeDigits - 1)}));
    return sequence(
        {optional(literal("-")), choice(std::move(whole)),
         optional(sequence({literal("."), digits(1, kFractionDigits)})),
         optional(sequence({one_of({{'E', 'E'}, {'e', 'e'}}),
                            optional(one_of({{'+', '+'}, {'-', '-'}})), digits(1, 2)}))});
  }
  DecimalGraph graph;
  const bool some_negative = !bounds.least || bounds.least->value.negative;
  if (some_negative) {
    const std::uint32_t minus = graph.graph().node();
    graph.graph().edge(GraphBuilder::kStart, minus, literal("-"));
    const bool all = bounds.most && bounds.most->value.negative;
    std::optional<Bound> high;
    if (bounds.least) high = negated(*bounds.least);
    graph.add(minus, all ? negated(*bounds.most) : kAboveZero, high);
  }
  if (!bounds.most || !bounds.most->value.negative) {
    const bool from_zero = !bounds.least || bounds.least->value.negative;
    graph.add(GraphBuilder::kStart, from_zero ? kZero : *bounds.least, bounds.most);
  }
  return graph.take();
}

}  // namespace lemma::text::constraint
