// SPDX-License-Identifier: Apache-2.0
// make_table<Simd>(name): the kernel table of one instruction set, from the templates. Included by
// the kernels_*.cpp files only.
//
// Both token classes run the same kernels today: one kernel family is the fastest known for one
// row and for many. The class stays in the table because the two may differ (see docs/design.md).
#pragma once

#include "backend/cpu/kernels/activations.hpp"
#include "backend/cpu/kernels/attention.hpp"
#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/product.hpp"
#include "backend/cpu/kernels/project_expanded.hpp"
#include "backend/cpu/kernels/project_floats.hpp"
#include "backend/cpu/kernels/project_folded.hpp"
#include "backend/cpu/kernels/project_formats.hpp"
#include "backend/cpu/kernels/project_grids.hpp"
#include "backend/cpu/kernels/project_panels.hpp"
#include "backend/cpu/kernels/project_points.hpp"
#include "backend/cpu/kernels/recurrent.hpp"
#include "backend/cpu/kernels/rows.hpp"

namespace lemma::cpu {

/// Puts one layout's kernels into the table.
template <typename Simd, typename Panel>
constexpr void put_int8(KernelTable& table, WeightKernel kernel) {
  const auto at = static_cast<std::size_t>(kernel);
  for (auto& project : table.project[at]) project = project_int8<Simd, Panel>;
  table.expand[at] = kExpand<Simd, Panel>;
}
template <typename Simd, typename Panel>
constexpr void put_grid(KernelTable& table, WeightKernel kernel) {
  const auto at = static_cast<std::size_t>(kernel);
  for (auto& project : table.project[at]) project = project_grid<Simd, Panel>;
  table.expand[at] = kExpand<Simd, Panel>;
}
template <typename Simd, typename Points>
constexpr void put_turned(KernelTable& table, WeightKernel kernel) {
  using Panel = PanelPoints<Simd, Points>;
  const auto at = static_cast<std::size_t>(kernel);
  for (auto& project : table.project[at]) project = project_points<Simd, Panel>;
  table.expand[at] = kExpand<Simd, Panel>;
}
template <typename Simd, typename Element>
constexpr void put_floats(KernelTable& table, WeightKernel kernel) {
  for (auto& project : table.project[static_cast<std::size_t>(kernel)]) {
    project = project_floats<Simd, Element>;
  }
}

/// The formats with a grid, whose kernels a processor's lookups make faster.
template <typename Simd>
constexpr void put_grids(KernelTable& table) {
  put_grid<Simd, PanelBase3<Simd>>(table, WeightKernel::kBase3);
  put_grid<Simd, PanelSteps<Simd, 1>>(table, WeightKernel::kSteps32);
  put_grid<Simd, PanelSteps<Simd, 2>>(table, WeightKernel::kSteps16);
  put_grid<Simd, PanelSigned<Simd>>(table, WeightKernel::kSigned16);
  put_turned<Simd, PointsIQ2_XXS<Simd>>(table, WeightKernel::kPointsIQ2_XXS);
  put_turned<Simd, PointsIQ3<Simd, 256, kIQ3_XXSLevels8>>(table, WeightKernel::kPointsIQ3_XXS);
  put_turned<Simd, PointsIQ3<Simd, 512, kIQ3_SLevels8>>(table, WeightKernel::kPointsIQ3_S);
}

template <typename Simd>
constexpr void put_quantized(KernelTable& table) {
  put_int8<Simd, PanelQ8_0<Simd>>(table, WeightKernel::kQ8_0);
  put_int8<Simd, PanelQ4_0<Simd>>(table, WeightKernel::kQ4_0);
  put_int8<Simd, PanelQ4_K<Simd>>(table, WeightKernel::kQ4_K);
  put_int8<Simd, PanelQ6_K<Simd>>(table, WeightKernel::kQ6_K);
  put_int8<Simd, PanelQ5_0<Simd>>(table, WeightKernel::kQ5_0);
  put_int8<Simd, PanelOffset<Simd, false>>(table, WeightKernel::kQ4_1);
  put_int8<Simd, PanelOffset<Simd, true>>(table, WeightKernel::kQ5_1);
  put_int8<Simd, PanelQ2_K<Simd>>(table, WeightKernel::kQ2_K);
  put_int8<Simd, PanelQ3_K<Simd>>(table, WeightKernel::kQ3_K);
  put_int8<Simd, PanelQ5_K<Simd>>(table, WeightKernel::kQ5_K);
  put_int8<Simd, PanelQ8_K<Simd>>(table, WeightKernel::kQ8_K);
  put_int8<Simd, PanelTernary<Simd>>(table, WeightKernel::kTernary);
  put_int8<Simd, PanelTable<Simd, 1>>(table, WeightKernel::kTable32);
  put_int8<Simd, PanelTable<Simd, 2>>(table, WeightKernel::kTable16);
  put_grids<Simd>(table);
  put_int8<Simd, PanelHalves<Simd>>(table, WeightKernel::kHalves32);
  put_int8<Simd, PanelPowers<Simd>>(table, WeightKernel::kPowers32);
  put_int8<Simd, PanelEights<Simd>>(table, WeightKernel::kEights16);
}

template <typename Simd>
constexpr KernelTable make_table(const char* name) {
  KernelTable table{
      .name = name,
      .project = {},
      .expand = {},
      .entered = {},
      .product = product<Simd>,
      .product16 = {product_16<Simd, F16>, product_16<Simd, BF16>},
      .quantize = quantize<Simd>,
      .bf16_rows = false,
      .round_whole = nullptr,
      .soften = soften<Simd>,
      .transpose = transpose<Simd>,
      .transpose16 = {transpose_16<Simd, F16>, transpose_16<Simd, BF16>},
      .whole_attention = nullptr,
      .merge = merge<Simd>,
      .softcap = softcap<Simd>,
      .sum = sum<Simd>,
      .sum_of_squares = sum_of_squares<Simd>,
      .normalize = normalize<Simd>,
      .silu = silu<Simd>,
      .gelu_tanh = gelu_tanh<Simd>,
      .gelu_erf = gelu_erf<Simd>,
      .relu = relu<Simd, false>,
      .relu_squared = relu<Simd, true>,
      .silu_limited = silu_limited<Simd>,
      .swiglu_oai = swiglu_oai<Simd>,
      .situ = situ<Simd>,
      .gate = gate<Simd>,
      .rotate = rotate<Simd>,
      .add = add<Simd>,
      .dot = dot<Simd>,
      .delta_rows = delta_rows<Simd>,
      .convolve = convolve<Simd>,
      .decay = decay<Simd>,
      .pool = pool<Simd>,
      .decode_f16 = decode_16<Simd, F16>,
      .decode_bf16 = decode_16<Simd, BF16>,
      .decode_q8 = decode_q8<Simd>,
  };
  put_floats<Simd, float>(table, WeightKernel::kF32);
  put_floats<Simd, F16>(table, WeightKernel::kF16);
  put_floats<Simd, BF16>(table, WeightKernel::kBF16);
  put_quantized<Simd>(table);
  return table;
}

template <typename Simd>
constexpr Int8Kernels int8_kernels(const char* name) {
  KernelTable table{};
  put_quantized<Simd>(table);
  Int8Kernels kernels{name, {}};
  for (std::size_t i = 0; i < kWeightKernels; ++i) kernels.project[i] = table.project[i][0];
  return kernels;
}

}  // namespace lemma::cpu
