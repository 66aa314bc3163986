// SPDX-License-Identifier: Apache-2.0
#include "model/weight_binder.hpp"

namespace lemma::model {

backend::WeightId WeightBinder::bind(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols,
                                     backend::WeightUse use) {
  if (!ref) return backend::kNoWeight;
  const View& view = ref.view;
  const Key key{ref.tensor, view.kind, view.begin, view.end, view.stride, rows, cols, use};
  if (const auto found = bound_.find(key); found != bound_.end()) return found->second;
  const backend::WeightId id = backend_.add(weights::bind(checkpoint_, ref, rows, cols), use);
  bound_.emplace(key, id);
  return id;
}

}  // namespace lemma::model
