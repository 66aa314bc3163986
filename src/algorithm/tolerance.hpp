// SPDX-License-Identifier: Apache-2.0
// Tolerances: how far a backend may be from the f32 reference, per operation, with the reason
// beside each number. What is discrete (ids, ranges, positions) has none: it is equal. The numbers
// compare one operation on equal inputs unless their comment says otherwise. They are derived, not
// fitted: one that fails points at a fault, not at a number to raise.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace lemma::algorithm {

/// Admits |got - want| <= relative * |want| + absolute_of_max * max|want| over the compared row.
/// The second term is for elements that are small by cancellation: their error is that of the
/// large terms they are made of.
struct Tolerance {
  double relative = 0.0;
  double absolute_of_max = 0.0;

  bool admits(double got, double want, double largest_want) const noexcept {
    return std::abs(got - want) <= relative * std::abs(want) + absolute_of_max * largest_want;
  }
  friend constexpr Tolerance operator+(Tolerance a, Tolerance b) noexcept {
    return {a.relative + b.relative, a.absolute_of_max + b.absolute_of_max};
  }
  friend constexpr Tolerance operator*(double n, Tolerance a) noexcept {
    return {n * a.relative, n * a.absolute_of_max};
  }
  friend bool operator==(const Tolerance&, const Tolerance&) = default;
};

namespace tolerance {

/// One norm: the reference sums in f64 and is exact to a few units of 2^-24 (6e-8); a backend sums
/// in f32 in another order, whose error for widths up to 16k stays below 128 * 2^-24 = 8e-6.
inline constexpr Tolerance kNorm{1e-5, 1e-6};

/// One rotation: the angle is the same f32 product everywhere, so only cos and sin (1-2 units of
/// 2^-24 each) and two products differ. The sum u c - v s may cancel, hence the second term.
inline constexpr Tolerance kRotate{1e-5, 1e-6};

/// One attention: exp is 1-2 ulp, but its argument carries the score's rounding. Scores below 50
/// with an error of sqrt(d) * 2^-24 relative move a weight by about 1e-5; the weights' errors then
/// average out in the sum of values. Rows of state are equal on both sides: formats round, and
/// backends do not.
inline constexpr Tolerance kAttend{1e-5, 1e-6};

/// One activation or other elementwise map: exp, tanh or erf to 1-2 ulp and a few products.
inline constexpr Tolerance kElementwise{1e-5, 1e-6};

/// One product of weights held in f32, f16 or bf16, widened exactly, with f32 inputs; `k` terms per
/// output. Rounding of a sum is a random walk: its error grows as sqrt(k), in the ascending order
/// of the reference as in any other. At k = 16384 one walk of unit terms is off by about
/// 0.1 * sqrt(k) * 2^-24 = 8e-7 of the row's largest output; ten times that for rows whose terms
/// are of unequal size. Short sums keep the floor of an elementwise map.
inline Tolerance project(std::uint64_t k) noexcept {
  const double growth = std::sqrt(double(k) / 16384.0);
  return {std::fmax(5e-5 * growth, 1e-5), std::fmax(1e-5 * growth, 1e-6)};
}

/// The absorbed form of latent attention against the expanded one, over latents of `c` elements:
/// the products with a head's two halves are summed in another order, one before the scores and one
/// after the mean, and the softmax is as exact as any.
inline Tolerance absorbed(std::uint64_t c) noexcept {
  return 2.0 * project(c) + kAttend;
}

/// A recurrent state, and what is read from it, after `tokens` steps of two f32 implementations
/// that were fed alike. An error made at one token stays as long as the state remembers: with each
/// step it shrinks by the decay, so at most 1 / (1 - decay) tokens' errors are alive, and never
/// more than there were tokens. Each adds about 1e-5 of the largest entry (a product of d_k terms
/// and an exp). `slowest_decay` is the largest factor that any entry was multiplied with, in
/// [0, 1].
inline Tolerance recurrent(std::uint64_t tokens, double slowest_decay) noexcept {
  const double alive = slowest_decay < 1.0 ? 1.0 / (1.0 - slowest_decay) : HUGE_VAL;
  return {0.0, 1e-5 * std::fmin(double(tokens), alive)};
}

/// The delta rule by cells of 64 against its steps, on equal inputs: the same terms in another
/// order, of the largest entry. A key of length one with beta in [0, 1] never amplifies what is off
/// already, so errors only add: 64 tokens with some five roundings of 2^-24 each, none of them
/// cancelling, make 2e-5. Cells do not add to one another beyond that, for the steps' own errors
/// stay alive just as long.
inline constexpr Tolerance kDeltaCells{0.0, 2e-5};

/// Expert weights from equal logits: one exp or sigmoid each, a sum of at most a few dozen terms of
/// one sign, and a division, which keep a few units of 2^-24.
inline constexpr Tolerance kRoute{1e-6, 1e-7};

/// Hyper-connection coefficients from a state of `k` elements (all streams): one product of k
/// terms, whose error a sigmoid of slope 1/4 or a softmax carries on; Sinkhorn's divisions each
/// rescale by sums of positive terms and contract towards one matrix, so they add units of 2^-24.
inline Tolerance hyper_connection(std::uint64_t k) noexcept {
  return project(k) + kNorm + kElementwise;
}

/// One feed-forward block: the gate's and the up projection's errors meet in the product (the
/// steepest activation here has slope 1.13), the down projection carries them on and adds its own.
inline Tolerance mlp(std::uint64_t width, std::uint64_t hidden) noexcept {
  return 2.0 * project(width) + project(hidden) + kElementwise;
}

/// The head: one product of `width` terms; a soft-cap after it has slope at most 1.
inline Tolerance head(std::uint64_t width) noexcept {
  return project(width) + kElementwise;
}

/// The hidden state after `layers` layers that were not fed the reference's inputs. Each layer adds
/// the error of about ten operations to what the residual stream carries; errors may also be
/// amplified, so the growth is taken as linear and not as a root: 1e-4 after four layers.
inline Tolerance hidden(std::uint32_t layers) noexcept {
  const double n = double(layers > 0 ? layers : 1);
  return {2.5e-5 * n, 2.5e-5 * n};
}

/// Logits at the end of `layers` layers. They are differences of large terms, so only their largest
/// counts: twice the hidden state's error, for the final norm and the head.
inline Tolerance logits(std::uint32_t layers) noexcept {
  return {0.0, 2.0 * hidden(layers).absolute_of_max};
}

/// Activations that travel in f16 (unit roundoff 2^-11) or bf16 (2^-8): four roundings.
inline constexpr Tolerance kF16Activations{2e-3, 1e-3};
inline constexpr Tolerance kBF16Activations{1.6e-2, 8e-3};

/// How far an angle may be off: the f32 product position * frequency rounds to 2^-24 of itself, and
/// an independent table's frequency may be off by the same; plus one ulp of cos or sin.
inline double angle_error(double position, double inv_freq) noexcept {
  return std::abs(position) * inv_freq * 0x1p-23 + 0x1p-23;
}

/// Attention in whole numbers of 13 bits, on equal inputs. A query, key or value is off by at most
/// half of 1/4095 of its row's largest, r rms, so with a standard deviation of r / (4095 sqrt 12) =
/// r / 14186 of its rms. A score |q| |k| s of up to 50, as in kAttend, is then off by 50 r /
/// (14186 sqrt d) for each of both, and its weight by as much of itself; r = 4 (normal numbers have
/// 3) and heads of d = 64 make that 1.76e-3. Errors of scores and values are averaged as the values
/// are: sqrt(2 * 1.76e-3^2 + (4 / 14186)^2) = 2.5e-3 of the output's rms. Six sigma of a largest
/// output of three rms are 5.0e-3.
inline constexpr Tolerance kWholeAttend{0.0, 5e-3};
/// Of the largest value v, beside that, where values cancel: a mean keeps half a step of the
/// values, v / 8190, and the weights' half steps of 1/8191 of the largest of 64 that share them:
/// those add as a random walk to sqrt(64) v / (8191 sqrt 12), six sigma of which are 1.7e-3 v.
inline constexpr double kWholeValues = 1.8e-3;

/// Quantized weights with activations rounded to int8 in groups of 32, against the reference on the
/// dequantized weights, for one product.
///
/// A group with largest value a has the step a / 127, so an activation is off by at most a / 254,
/// with a standard deviation of a / (254 sqrt 3) = a / 440 if the errors lie evenly. A dot product
/// adds them as a random walk: sigma_y = rms(w) sqrt(k) a / 440, while the output itself is about
/// rms(w) sqrt(k) rms(x): k drops out, and sigma_y / rms(y) = (a / rms(x)) / 440. For normal
/// activations a / rms(x) is 2.4; it is sqrt(32) = 5.7 at worst, when one value rules each group,
/// giving 1.3e-2. Six sigma bound an even distribution's sum with probability 1 - 3e-8, and a row
/// of 300 or more outputs has a largest one of at least 3 rms(y): 6 / 3 * 1.3e-2. Weights that are
/// dequantized alike on both sides add nothing.
inline constexpr Tolerance kInt8Project{0.0, 2.6e-2};

/// A feed-forward block of such products: three independent sources (gate, up, down) add as
/// sqrt(3), times the activation's slope of at most 1.13.
inline constexpr Tolerance kInt8Mlp{0.0, 5.2e-2};

/// The same six sigma for one output with known data, which is far sharper: `w` the dequantized
/// weight row and `x` the input, both [k], groups of 32 (the last may be short).
double int8_bound(std::span<const float> w, std::span<const float> x) noexcept;

/// BF16 weights with activations rounded to bf16 and sums in f32, for one product.
///
/// A number is off by at most half a step, 2^-8 of itself, and as a standard deviation over all
/// fractions by 0.425 of that, 1.66e-3. Errors of many terms add as a random walk, and so do the
/// terms: sigma_y = 1.66e-3 rms(y), whatever the activations' sizes are. Six sigma of a largest
/// output of three rms are 3.3e-3. Where one term rules all outputs nothing averages out, and they
/// are off by at most 2^-8 = 3.9e-3.
inline constexpr Tolerance kBf16Project{0.0, 4e-3};
/// The same where weights are rounded to bf16 too: twice as far in the second case, and in the
/// first sqrt(2) times.
inline constexpr Tolerance kBf16BothProject = 2.0 * kBf16Project;
/// A feed-forward block of such products, as kInt8Mlp is made of kInt8Project.
inline constexpr Tolerance kBf16Mlp = 2.0 * kBf16Project;
inline constexpr Tolerance kBf16BothMlp = 2.0 * kBf16BothProject;

/// Weights and activations in whole numbers of 13 bits with a scale for each 128 columns, and exact
/// sums of 128 products, for one product.
///
/// 128 numbers with largest value a have the step a / 4095, so one is off by at most a / 8190, with
/// a standard deviation of a / (4095 sqrt 12) = a / 14186. As with int8 the terms' number drops
/// out: sigma_y / rms(y) = (a / rms) / 14186 for either side, where a / rms is 2.7 for normal
/// numbers and sqrt(128) = 11.3 at worst, when one value rules each block: 8e-4, and sqrt(2) times
/// that for both. Six sigma of a largest output of three rms are 2.3e-3.
inline constexpr Tolerance kWholeProject{0.0, 2.3e-3};
/// A feed-forward block of such products, as kInt8Mlp is made of kInt8Project.
inline constexpr Tolerance kWholeMlp = 2.0 * kWholeProject;

/// Six sigma for one output with known data, or what rounding can do at most where that is less.
double whole_bound(std::span<const float> w, std::span<const float> x) noexcept;

/// Six sigma for one output with known data, or what rounding can do at most where that is less.
/// `both`: weights are rounded as well as activations.
double bf16_bound(std::span<const float> w, std::span<const float> x, bool both) noexcept;

}  // namespace tolerance
}  // namespace lemma::algorithm
