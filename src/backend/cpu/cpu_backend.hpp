// SPDX-License-Identifier: Apache-2.0
// The cpu backend: every operation of the contract on the processor's vector units. Instruction
// set and thread count are chosen at run time; weights are packed once when they are added, or
// where they shall stay as the file has them, each time they are used.
//
// Same input, same output: for one instruction set, numerics and state format, a row's bits depend
// on its history alone, not on the step's other rows, the chunking, the number of threads or the
// placement of pages. Work is split over outputs, heads and rows only, never over the terms of a
// sum.
//
//   auto backend = cpu::make_backend({.threads = 4});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "base/cpu_features.hpp"

namespace lemma::cpu {

struct KernelTable;

struct CpuOptions {
  int threads = 0;               ///< 0: one per fast core, within affinity mask and quota
  std::optional<base::Isa> isa;  ///< unset: the best there is, capped by LEMMA_ISA
  backend::Numerics numerics = backend::Numerics::kFast;
  bool repack = true;  ///< false: weights stay as the file has them and are packed as they are used
  /// Tensors of which this holds anyway, sorted: experts, whose rows are read as they are chosen.
  std::vector<std::string> mapped{};
  const KernelTable* kernels = nullptr;  ///< for tests: these instead of those of `isa`
};

/// Bytes that a matrix of this shape takes once it is packed; 0 where it would not be.
std::uint64_t packed_bytes(weights::Format format, std::uint64_t rows, std::uint64_t cols,
                           backend::Numerics numerics) noexcept;

/// Throws kUsage for a negative thread count or an instruction set that this machine lacks.
std::unique_ptr<backend::Backend> make_backend(const CpuOptions& options = {});

}  // namespace lemma::cpu
