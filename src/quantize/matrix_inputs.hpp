// SPDX-License-Identifier: Apache-2.0
// Matrix inputs: which rows of a forward pass each matrix of a checkpoint is multiplied with.
// Matrices that read the same rows (query, key and value; gate and up) share an input. A matrix
// inside an operation that has no site in front of it (latent attention's way up) has none, nor has
// a table that is only looked up.
//
//   const MatrixInputs found = matrix_inputs(model);
//   for (const MatrixInputs::Use& use : found.uses.at("blk.0.attn_q.weight")) ...
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::quantize {

/// Where rows of `cols` elements come from. Tensors are sites of MatrixInputs::program, by id.
struct MatrixInput {
  std::int32_t site = -1;
  std::uint32_t cols = 0;
  std::uint32_t runs = 1;  ///< inputs in a row of the site, one behind the other

  // Of a stack of experts. The chosen experts of a row all read it (runs is 1), or that of rank i
  // reads run i. `weights` is there where they multiply what is read.
  std::uint32_t experts = 0;  ///< 0: a matrix by itself
  std::int32_t ids = -1, weights = -1;

  std::size_t matrices() const noexcept { return experts == 0 ? 1 : experts; }
  auto operator<=>(const MatrixInput&) const = default;
};

struct MatrixInputs {
  /// A tensor's columns from `first_column` on meet an input.
  struct Use {
    std::size_t input = 0;  ///< index into inputs
    std::uint64_t first_column = 0;
    auto operator<=>(const Use&) const = default;
  };

  backend::Program program;  ///< the model's, with sites for what down projections read
  std::vector<MatrixInput> inputs;
  std::map<std::string, std::vector<Use>, std::less<>> uses;  ///< by tensor; distinct, in order
};

MatrixInputs matrix_inputs(const runtime::LoadedModel& model);

}  // namespace lemma::quantize
