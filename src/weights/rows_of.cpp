// SPDX-License-Identifier: Apache-2.0
#include "weights/rows_of.hpp"

namespace lemma::weights {

Matrix rows_of(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  const std::uint64_t elements = tensor.elements(), cols = tensor.row_elements();
  const bool vector = elements == cols || cols == 1;
  return bind(checkpoint, {tensor.name, {}}, vector ? 1 : tensor.rows(), vector ? elements : cols);
}

}  // namespace lemma::weights
