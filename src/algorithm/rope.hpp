// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: which dims of a head turn, by which angle. The spec says it all;
// `RopeTable` is the spec worked out once to f32 frequencies, and `rotate` turns one head.
// Precision: frequencies are computed in f64 and rounded once, the angle is the f32 product
// position * frequency, cos and sin are taken of that f32 angle. Formulas: docs/contract.md,
// "RoPE".
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace lemma::algorithm {

/// How dims are paired: SplitHalf turns (x[i], x[i + R/2]); Interleaved turns (x[2i], x[2i+1]).
enum class RopeLayout : std::uint8_t { kSplitHalf, kInterleaved };
/// Which dims of a head turn: the first R or the last R.
enum class RopePlacement : std::uint8_t { kPrefix, kSuffix };

struct LinearScaling {
  float factor = 1.f;  ///< frequencies are divided by it
  friend bool operator==(const LinearScaling&, const LinearScaling&) = default;
};
/// Only the first floor(active_fraction * R / 2) pairs turn; the others have frequency 0.
struct ProportionalScaling {
  float active_fraction = 1.f, factor = 1.f;
  friend bool operator==(const ProportionalScaling&, const ProportionalScaling&) = default;
};
struct YarnScaling {
  float factor = 1.f;
  float original_context = 0.f;
  float beta_fast = 32.f, beta_slow = 1.f;
  bool truncate = true;  ///< floor and ceil the correction dims
  friend bool operator==(const YarnScaling&, const YarnScaling&) = default;
};
struct Llama3Scaling {
  float factor = 8.f, low_freq_factor = 1.f, high_freq_factor = 4.f, original_context = 8192.f;
  friend bool operator==(const Llama3Scaling&, const Llama3Scaling&) = default;
};
/// Each pair's frequency is divided by its own factor: LongRoPE's short or long list, or the
/// `rope_freqs` tensor of a checkpoint. A factor of 1e30 leaves a pair unrotated.
struct FactorScaling {
  std::vector<float> factors;  ///< [R/2]
  friend bool operator==(const FactorScaling&, const FactorScaling&) = default;
};
using RopeScaling = std::variant<std::monostate, LinearScaling, ProportionalScaling, YarnScaling,
                                 Llama3Scaling, FactorScaling>;

struct RopeSpec {
  std::uint32_t rotary_dim = 0;  ///< R: even, 0 < R <= head width
  float theta = 10000.f;
  RopeScaling scaling;
  RopeLayout layout = RopeLayout::kSplitHalf;
  RopePlacement placement = RopePlacement::kPrefix;
  float attention_factor = 1.f;  ///< multiplies cos and sin
  /// Multimodal sections in pairs for (t, h, w), summing to R/2; all zero for text models.
  std::array<std::uint32_t, 3> sections{};
  bool interleaved_sections = false;

  /// Throws kUnsupported naming the wrong field. `head_dim` is the width of the head that turns.
  void validate(std::uint32_t head_dim) const;
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

/// YaRN's magnitude m(factor, mscale) = 1 for factor <= 1, else 0.1 * mscale * ln(factor) + 1.
float yarn_magnitude(float factor, float mscale) noexcept;
/// LongRoPE's magnitude sqrt(1 + ln(factor) / ln(original_context)), 1 for factor <= 1.
float longrope_magnitude(float factor, float original_context) noexcept;

/// A position as the rotation sees it: equal entries for text, (t, h, w) for images.
using RopePosition = std::array<std::int32_t, 3>;

/// The largest position (either sign) whose f32 is exact. Longer contexts are refused when a model
/// is loaded; `angles` checks.
inline constexpr std::int32_t kMaxRopePosition = 1 << 24;

class RopeTable {
 public:
  /// Works the spec out; the spec must have been validated.
  explicit RopeTable(const RopeSpec& spec);

  const RopeSpec& spec() const noexcept { return spec_; }
  std::span<const float> inv_freq() const noexcept { return inv_freq_; }  ///< [R/2]

  /// cos and sin of each pair at `position`, attention factor included; both [R/2].
  void angles(const RopePosition& position, std::span<float> cos,
              std::span<float> sin) const noexcept;

 private:
  RopeSpec spec_;
  std::vector<float> inv_freq_;
  std::vector<std::uint8_t> axis_;  ///< which of (t, h, w) pair i uses
};

/// Turns one head in place: `head` [D] by `cos`, `sin` [R/2]; `inverse` turns back. Dims outside
/// the rotary part keep their bits.
void rotate(const RopeSpec& spec, std::span<const float> cos, std::span<const float> sin,
            bool inverse, std::span<float> head) noexcept;

}  // namespace lemma::algorithm
