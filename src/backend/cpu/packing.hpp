// SPDX-License-Identifier: Apache-2.0
// Packing: a matrix in its file layout -> panels of 16 rows that every instruction set reads. A
// panel interleaves its rows, four columns of one row beside four columns of the next, so that one
// vector load feeds 16 outputs and no sum crosses lanes. Codes and scales keep their values; only
// their places change. Rows missing from the last panel are zero.
//
//   F32, F16, BF16                 [K][16] elements
//   Q8_0, Q4_0, Q4_K, Q6_K, Q5_0   drawn at their readers in kernels/project_panels.hpp
//   IQ2_XXS, IQ3_XXS, IQ3_S        kernels/project_points.hpp
//   IQ1, IQ2_XS, IQ2_S, TQ         kernels/project_grids.hpp
//   the others                     kernels/project_formats.hpp
//
// Grid points of IQ1, IQ2_XS and IQ2_S are looked up here, once: a code is then a level, of three.
//
// Pure functions; different panels may be packed by different threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.hpp"
#include "weights/view.hpp"

namespace lemma::cpu {

/// Whether `format` has kernels of its own. (Other formats are decoded and multiplied as f32.)
bool has_kernel(weights::Format format) noexcept;
/// The kernel of a format that has one.
WeightKernel kernel_of(weights::Format format) noexcept;
/// Whether the kernel takes int8 activations.
bool takes_int8(WeightKernel kernel) noexcept;

/// Bytes of one packed panel of `cols` columns, a multiple of 64. `cols` must be whole blocks.
std::size_t panel_bytes(weights::Format format, std::size_t cols) noexcept;
/// Packs the rows [first_row, first_row + 16) of `matrix`, as far as they exist, to `panel`.
void pack_panel(const weights::Matrix& matrix, std::uint64_t first_row, std::byte* panel) noexcept;

}  // namespace lemma::cpu
