// SPDX-License-Identifier: Apache-2.0
// What the conformance cases of the families share. Inputs come straight from embeddings, so what
// is compared is the operation alone.
#pragma once

#include <cmath>
#include <string>

#include "backend/cpu/conformance.hpp"

namespace lemma::backend::conformance {

inline bool is_float(weights::Format format) {
  using weights::Format;
  return format == Format::kF32 || format == Format::kF16 || format == Format::kBF16;
}

inline std::string name_of(weights::Format format) {
  return std::string(weights::traits(format).name);
}

inline float root(std::uint32_t n) {
  return 1.f / std::sqrt(static_cast<float>(n));
}

/// A matrix that leaves the size of its inputs about as it is.
inline WeightId matrix(CaseBuilder& b, weights::Format format, std::uint64_t rows,
                       std::uint32_t cols) {
  return b.weight(format, rows, cols, WeightUse::kMatrix, root(cols));
}

/// New slots for a spec's, in order; returns the first.
inline SlotId slots(CaseBuilder& b, const algorithm::Slots& added) {
  const auto first = static_cast<SlotId>(b.program().slots.size());
  for (const algorithm::Slot& slot : added) b.program().slots.push_back(slot);
  return first;
}

}  // namespace lemma::backend::conformance
