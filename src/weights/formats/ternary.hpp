// SPDX-License-Identifier: Apache-2.0
// The encoder that TQ1_0 and TQ2_0 share: one scale d for a block of -d, 0 and d. Pure.
#pragma once

#include <span>

#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {

/// The d >= 0 of least weighted squared error. For a given number of elements that are not zero,
/// these are the largest ones and d is their mean; the best number is found by trying thresholds.
/// At most the largest |x|, so that no element is off by more than that.
double fit_ternary(std::span<const float> x, std::span<const float> w) noexcept;

}  // namespace lemma::weights::formats
