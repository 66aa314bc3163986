// SPDX-License-Identifier: Apache-2.0
#include "algorithm/rope.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <numbers>
#include <numeric>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::algorithm {
namespace {

bool positive(float value) {
  return std::isfinite(value) && value > 0.f;
}

template <typename T>
void require(bool holds, const char* field, const char* expected, T found) {
  if (!holds) {
    base::raise(ErrorKind::kUnsupported, "rope {}: expected {}, found {}", field, expected, found);
  }
}

constexpr const char* kPositive = "a finite number > 0";

void check_scaling(const RopeSpec&, std::monostate) {}

void check_scaling(const RopeSpec&, const LinearScaling& s) {
  require(positive(s.factor), "linear factor", kPositive, s.factor);
}

void check_scaling(const RopeSpec&, const ProportionalScaling& s) {
  require(s.active_fraction >= 0.f && s.active_fraction <= 1.f, "active fraction",
          "a number in [0, 1]", s.active_fraction);
  require(positive(s.factor), "proportional factor", kPositive, s.factor);
}

void check_scaling(const RopeSpec& spec, const YarnScaling& s) {
  require(spec.theta != 1.f, "theta", "another number than 1 with YaRN", spec.theta);
  require(positive(s.factor), "YaRN factor", kPositive, s.factor);
  require(positive(s.original_context), "YaRN original context", kPositive, s.original_context);
  require(positive(s.beta_slow), "YaRN beta_slow", kPositive, s.beta_slow);
  require(positive(s.beta_fast) && s.beta_fast >= s.beta_slow, "YaRN beta_fast",
          "a finite number >= beta_slow", s.beta_fast);
}

void check_scaling(const RopeSpec&, const Llama3Scaling& s) {
  require(positive(s.factor), "Llama 3 factor", kPositive, s.factor);
  require(positive(s.original_context), "Llama 3 original context", kPositive, s.original_context);
  require(positive(s.low_freq_factor), "Llama 3 low_freq_factor", kPositive, s.low_freq_factor);
  require(positive(s.high_freq_factor) && s.high_freq_factor > s.low_freq_factor,
          "Llama 3 high_freq_factor", "a finite number > low_freq_factor", s.high_freq_factor);
}

void check_scaling(const RopeSpec& spec, const FactorScaling& s) {
  require(s.factors.size() == spec.rotary_dim / 2, "factors", "one per pair of the rotary part",
          s.factors.size());
  for (const float factor : s.factors) require(positive(factor), "factor", kPositive, factor);
}

/// Each of these turns the plain frequencies `f` of all pairs into the scaled ones.
void scale_frequencies(const RopeSpec&, std::monostate, std::vector<double>&) {}

void scale_frequencies(const RopeSpec&, const LinearScaling& s, std::vector<double>& f) {
  for (double& frequency : f) frequency /= double(s.factor);
}

void scale_frequencies(const RopeSpec& spec, const ProportionalScaling& s, std::vector<double>& f) {
  // The product is rounded to f32 so that a fraction such as 0.7, a little less than itself in
  // f32, does not lose a pair to floor().
  const float active = std::floor(s.active_fraction * float(spec.rotary_dim) / 2.f);
  for (std::size_t i = 0; i < f.size(); ++i) {
    f[i] = float(i) < active ? f[i] / double(s.factor) : 0.0;
  }
}

void scale_frequencies(const RopeSpec& spec, const YarnScaling& s, std::vector<double>& f) {
  const double dims = double(spec.rotary_dim);
  // The pair index whose wavelength fits `turns` times into the original context.
  const auto correction = [&](float turns) {
    const double wavelength = double(s.original_context) / (2.0 * std::numbers::pi * double(turns));
    return dims * std::log(wavelength) / (2.0 * std::log(double(spec.theta)));
  };
  double low = correction(s.beta_fast), high = correction(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1.0);
  if (high <= low) high = low + 0.001;  // the ramp becomes a step
  for (std::size_t i = 0; i < f.size(); ++i) {
    const double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    f[i] = f[i] * (1.0 - ramp) + f[i] / double(s.factor) * ramp;
  }
}

void scale_frequencies(const RopeSpec&, const Llama3Scaling& s, std::vector<double>& f) {
  const double context = double(s.original_context);
  const double low = double(s.low_freq_factor), high = double(s.high_freq_factor);
  for (double& frequency : f) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength < context / high) continue;
    const double slow = frequency / double(s.factor);
    if (wavelength > context / low) {
      frequency = slow;
    } else {
      const double blend = (context / wavelength - low) / (high - low);
      frequency = (1.0 - blend) * slow + blend * frequency;
    }
  }
}

void scale_frequencies(const RopeSpec&, const FactorScaling& s, std::vector<double>& f) {
  for (std::size_t i = 0; i < f.size(); ++i) f[i] /= double(s.factors[i]);
}

/// Which of (t, h, w) turns pair `i`.
std::uint8_t section_axis(const RopeSpec& spec, std::uint32_t i) {
  const auto [t, h, w] = spec.sections;
  if (t + h + w == 0) return 0;
  if (spec.interleaved_sections) {
    const bool in_h = i % 3 == 1 && i < 3 * h, in_w = i % 3 == 2 && i < 3 * w;
    return in_h ? 1 : in_w ? 2 : 0;
  }
  return i < t ? 0 : i < t + h ? 1 : 2;
}

}  // namespace

void RopeSpec::validate(std::uint32_t head_dim) const {
  if (rotary_dim == 0 || rotary_dim % 2 != 0 || rotary_dim > head_dim) {
    base::raise(ErrorKind::kUnsupported,
                "rope rotary_dim: expected an even number from 2 to the head width {}, found {}",
                head_dim, rotary_dim);
  }
  require(positive(theta), "theta", kPositive, theta);
  require(positive(attention_factor), "attention_factor", kPositive, attention_factor);
  std::visit([&](const auto& s) { check_scaling(*this, s); }, scaling);
  const std::uint64_t pairs = std::accumulate(sections.begin(), sections.end(), std::uint64_t{0});
  if (pairs != 0 && pairs != rotary_dim / 2) {
    base::raise(ErrorKind::kUnsupported,
                "rope sections: expected {} pairs together, found {} + {} + {}", rotary_dim / 2,
                sections[0], sections[1], sections[2]);
  }
  if (interleaved_sections && pairs == 0) {
    base::raise(ErrorKind::kUnsupported, "rope sections: interleaved, but all of them are empty");
  }
}

float yarn_magnitude(float factor, float mscale) noexcept {
  return factor <= 1.f ? 1.f : float(0.1 * double(mscale) * std::log(double(factor)) + 1.0);
}

float longrope_magnitude(float factor, float original_context) noexcept {
  if (factor <= 1.f) return 1.f;
  return float(std::sqrt(1.0 + std::log(double(factor)) / std::log(double(original_context))));
}

RopeTable::RopeTable(const RopeSpec& spec) : spec_(spec) {
  const std::uint32_t pairs = spec.rotary_dim / 2;
  std::vector<double> frequencies(pairs);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    frequencies[i] = std::pow(double(spec.theta), -2.0 * i / double(spec.rotary_dim));
    axis_.push_back(section_axis(spec, i));
  }
  std::visit([&](const auto& s) { scale_frequencies(spec, s, frequencies); }, spec.scaling);
  inv_freq_.assign(pairs, 0.f);
  std::transform(frequencies.begin(), frequencies.end(), inv_freq_.begin(),
                 [](double frequency) { return float(frequency); });
}

void RopeTable::angles(const RopePosition& position, std::span<float> cos,
                       std::span<float> sin) const noexcept {
  LEMMA_CHECK(cos.size() == inv_freq_.size() && sin.size() == inv_freq_.size());
  for (const std::int32_t p : position)
    LEMMA_CHECK(p >= -kMaxRopePosition && p <= kMaxRopePosition);
  for (std::size_t i = 0; i < inv_freq_.size(); ++i) {
    const float angle = float(position[axis_[i]]) * inv_freq_[i];
    cos[i] = std::cos(angle) * spec_.attention_factor;
    sin[i] = std::sin(angle) * spec_.attention_factor;
  }
}

void rotate(const RopeSpec& spec, std::span<const float> cos, std::span<const float> sin,
            bool inverse, std::span<float> head) noexcept {
  const std::size_t pairs = spec.rotary_dim / 2;
  LEMMA_CHECK(cos.size() == pairs && sin.size() == pairs && head.size() >= 2 * pairs);
  const bool split = spec.layout == RopeLayout::kSplitHalf;
  const std::size_t step = split ? 1 : 2, distance = split ? pairs : 1;
  const bool suffix = spec.placement == RopePlacement::kSuffix;
  float* const rotary = head.data() + (suffix ? head.size() - 2 * pairs : 0);
  for (std::size_t i = 0; i < pairs; ++i) {
    float& u = rotary[i * step];
    float& v = rotary[i * step + distance];
    const float c = cos[i], s = inverse ? -sin[i] : sin[i];
    const float turned = u * c - v * s;
    v = v * c + u * s;
    u = turned;
  }
}

}  // namespace lemma::algorithm
