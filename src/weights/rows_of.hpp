// SPDX-License-Identifier: Apache-2.0
// All rows of a tensor, for whoever reads a checkpoint without a plan: to convert it, to verify it.
#pragma once

#include "weights/checkpoint.hpp"
#include "weights/view.hpp"

namespace lemma::weights {

/// `tensor` of `checkpoint` as rows of its innermost dimension; a vector has one. Its bytes are
/// made where the container holds another form of it.
Matrix rows_of(const Checkpoint& checkpoint, const TensorInfo& tensor);

}  // namespace lemma::weights
