// SPDX-License-Identifier: Apache-2.0
// Which kernel table belongs to an instruction set. Apart from kernels.hpp, which the files with
// instruction-set flags include and which therefore includes nothing.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "base/cpu_features.hpp"

namespace lemma::cpu {

/// The table of `isa`, which must be one that base::available_isas lists on this machine.
const KernelTable& kernels(base::Isa isa) noexcept;
/// Its table for strict numerics, in which both token classes have the same arithmetic.
const KernelTable& strict_kernels(base::Isa isa) noexcept;
/// `below` with other instructions for quantized weights.
KernelTable with_int8(const KernelTable& below, const Int8Kernels& kernels) noexcept;
/// `below` with other kernels for entered rows.
KernelTable with_entered(const KernelTable& below, const EnteredKernels& entered) noexcept;

}  // namespace lemma::cpu
