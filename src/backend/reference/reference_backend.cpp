// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/reference_backend.hpp"

#include "backend/host_state.hpp"
#include "backend/reference/reference_executable.hpp"
#include "base/check.hpp"

namespace lemma::reference {
namespace {

class ReferenceBackend final : public backend::Backend {
 public:
  std::string_view name() const noexcept override { return "reference"; }
  std::string description() const override {
    return "reference: the contract's f32 functions on one thread";
  }

  backend::WeightId add(weights::Matrix matrix, backend::WeightUse use) override {
    Weight weight;
    weight.matrix = std::move(matrix);
    if (use == backend::WeightUse::kVector) {
      weight.vector = weights::to_f32(weight.matrix);
      vector_bytes_ += weight.vector.size() * sizeof(float);
    }
    weights_.push_back(std::move(weight));
    return static_cast<backend::WeightId>(weights_.size() - 1);
  }

  std::size_t weight_bytes() const noexcept override { return vector_bytes_; }

  std::unique_ptr<backend::StateStore> make_state(const state::Layout& layout,
                                                  std::span<const std::size_t> pages) override {
    return std::make_unique<backend::HostState>(layout, pages);
  }

  std::unique_ptr<backend::Executable> prepare(const backend::Program& program,
                                               backend::StateStore& state,
                                               const backend::PrepareOptions& options) override {
    auto* host = dynamic_cast<backend::HostState*>(&state);
    LEMMA_CHECK(host != nullptr);
    return std::make_unique<ReferenceExecutable>(program, weights_, *host, options);
  }

 private:
  std::vector<Weight> weights_;
  std::size_t vector_bytes_ = 0;
};

}  // namespace

std::unique_ptr<backend::Backend> make_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace lemma::reference
