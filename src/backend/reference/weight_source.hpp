// SPDX-License-Identifier: Apache-2.0
// WeightSource: how the contract's operations reach the weights of the backend that they run for.
// Matrices and tables are read in their format, vectors are f32 already. It owns nothing.
#pragma once

#include <span>

#include "backend/backend.hpp"

namespace lemma::reference {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The weight as it was added.
  virtual const weights::Matrix& matrix(backend::WeightId id) const noexcept = 0;
  /// The elements of a weight that was added as a vector.
  virtual std::span<const float> vector(backend::WeightId id) const noexcept = 0;
};

}  // namespace lemma::reference
