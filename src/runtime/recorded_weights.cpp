// SPDX-License-Identifier: Apache-2.0
#include "runtime/recorded_weights.hpp"

#include <memory>
#include <utility>

#include "model/decoder.hpp"

namespace lemma::runtime {
namespace {

/// A backend that only takes weights.
class Collector final : public backend::Backend {
 public:
  explicit Collector(std::vector<weights::Matrix>& matrices) : matrices_(matrices) {}
  std::string_view name() const noexcept override { return "collector"; }
  std::string description() const override { return "collector"; }
  backend::WeightId add(weights::Matrix matrix, backend::WeightUse) override {
    matrices_.push_back(std::move(matrix));
    return static_cast<backend::WeightId>(matrices_.size() - 1);
  }
  std::size_t weight_bytes() const noexcept override { return 0; }
  std::unique_ptr<backend::StateStore> make_state(const state::Layout&,
                                                  std::span<const std::size_t>) override {
    return nullptr;
  }
  std::unique_ptr<backend::Executable> prepare(const backend::Program&, backend::StateStore&,
                                               const backend::PrepareOptions&) override {
    return nullptr;
  }

 private:
  std::vector<weights::Matrix>& matrices_;
};

}  // namespace

RecordedWeights record_weights(const LoadedModel& model) {
  RecordedWeights recorded;
  Collector collector(recorded.matrices);
  recorded.program = model::record(model.plan(), model.checkpoint(), collector);
  return recorded;
}

}  // namespace lemma::runtime
