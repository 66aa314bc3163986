// SPDX-License-Identifier: Apache-2.0
#include "model/weight_binder.hpp"

#include <vector>

#include "base/raise.hpp"

namespace lemma::model {

backend::WeightId WeightBinder::bind(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols,
                                     backend::WeightUse use) {
  if (!ref) return backend::kNoWeight;
  const View& view = ref.view;
  const Key key{ref.tensor, view.kind, view.begin, view.end, view.stride, rows, cols, use};
  if (const auto found = bound_.find(key); found != bound_.end()) return found->second;
  const backend::WeightId id = take(ref, rows, cols, use);
  bound_.emplace(key, id);
  return id;
}

backend::WeightId WeightBinder::take(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols,
                                     backend::WeightUse use) {
  return backend_->add(weights::bind(checkpoint_, ref, rows, cols), use);
}

backend::WeightId WeightNotes::take(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols,
                                    backend::WeightUse use) {
  weights::check_shape(checkpoint(), ref, rows, cols);
  notes_.push_back({ref, rows, cols, use});
  return static_cast<backend::WeightId>(notes_.size() - 1);
}

backend::WeightId WeightBinder::bind_routes(const WeightRef& ref, std::uint64_t vocabulary,
                                            const algorithm::RoutingSpec& spec) {
  if (!ref) return backend::kNoWeight;
  const std::vector<float> numbers =
      weights::to_f32(weights::bind(checkpoint_, ref, vocabulary, spec.chosen));
  std::vector<std::uint32_t> ids;
  ids.reserve(numbers.size());
  for (const float number : numbers) {
    // No expert's number is as large as 2^24, up to which floats are whole.
    const bool whole = number >= 0.f && number < 0x1p24f &&
                       number == static_cast<float>(static_cast<std::uint32_t>(number));
    if (!whole)
      base::raise(ErrorKind::kBadFile,
                  "tensor '{}', token {}: expected numbers of experts, found {}", ref.tensor,
                  ids.size() / spec.chosen, number);
    ids.push_back(static_cast<std::uint32_t>(number));
  }
  try {
    algorithm::validate_hash_table(spec, ids);
  } catch (const Error& error) {
    throw error.within("tensor '" + ref.tensor + "'");
  }
  return bind(ref, vocabulary, spec.chosen, backend::WeightUse::kTable);
}

}  // namespace lemma::model
