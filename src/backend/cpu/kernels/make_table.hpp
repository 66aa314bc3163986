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
#include "backend/cpu/kernels/project_formats.hpp"
#include "backend/cpu/kernels/project_int8.hpp"
#include "backend/cpu/kernels/project_panels.hpp"
#include "backend/cpu/kernels/recurrent.hpp"
#include "backend/cpu/kernels/rows.hpp"

namespace lemma::cpu {

template <typename Simd>
constexpr KernelTable make_table(const char* name) {
  return KernelTable{
      .name = name,
      .project = {{project_floats<Simd, float>, project_floats<Simd, float>},
                  {project_floats<Simd, F16>, project_floats<Simd, F16>},
                  {project_floats<Simd, BF16>, project_floats<Simd, BF16>},
                  {project_int8<Simd, PanelQ8_0<Simd>>, project_int8<Simd, PanelQ8_0<Simd>>},
                  {project_int8<Simd, PanelQ4_0<Simd>>, project_int8<Simd, PanelQ4_0<Simd>>},
                  {project_int8<Simd, PanelQ4_K<Simd>>, project_int8<Simd, PanelQ4_K<Simd>>},
                  {project_int8<Simd, PanelQ6_K<Simd>>, project_int8<Simd, PanelQ6_K<Simd>>},
                  {project_int8<Simd, PanelQ5_0<Simd>>, project_int8<Simd, PanelQ5_0<Simd>>},
                  {project_int8<Simd, PanelOffset<Simd, false>>,
                   project_int8<Simd, PanelOffset<Simd, false>>},
                  {project_int8<Simd, PanelOffset<Simd, true>>,
                   project_int8<Simd, PanelOffset<Simd, true>>},
                  {project_int8<Simd, PanelQ2_K<Simd>>, project_int8<Simd, PanelQ2_K<Simd>>},
                  {project_int8<Simd, PanelQ3_K<Simd>>, project_int8<Simd, PanelQ3_K<Simd>>},
                  {project_int8<Simd, PanelQ5_K<Simd>>, project_int8<Simd, PanelQ5_K<Simd>>},
                  {project_int8<Simd, PanelQ8_K<Simd>>, project_int8<Simd, PanelQ8_K<Simd>>},
                  {project_int8<Simd, PanelTernary<Simd>>, project_int8<Simd, PanelTernary<Simd>>},
                  {project_int8<Simd, PanelTable<Simd, 1, false>>,
                   project_int8<Simd, PanelTable<Simd, 1, false>>},
                  {project_int8<Simd, PanelTable<Simd, 2, false>>,
                   project_int8<Simd, PanelTable<Simd, 2, false>>},
                  {project_int8<Simd, PanelTable<Simd, 1, true>>,
                   project_int8<Simd, PanelTable<Simd, 1, true>>},
                  {project_int8<Simd, PanelTable<Simd, 2, true>>,
                   project_int8<Simd, PanelTable<Simd, 2, true>>},
                  {project_int8<Simd, PanelFloats<Simd, 1>>,
                   project_int8<Simd, PanelFloats<Simd, 1>>},
                  {project_int8<Simd, PanelFloats<Simd, 2>>,
                   project_int8<Simd, PanelFloats<Simd, 2>>}},
      .product = product<Simd>,
      .product16 = {product_16<Simd, F16>, product_16<Simd, BF16>},
      .quantize = quantize<Simd>,
      .scores = scores<Simd>,
      .soften = soften<Simd>,
      .transpose = transpose<Simd>,
      .transpose16 = {transpose_16<Simd, F16>, transpose_16<Simd, BF16>},
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
}

}  // namespace lemma::cpu
