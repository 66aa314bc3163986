// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/reference_backend.hpp"

#include <deque>
#include <utility>

#include "backend/host_state.hpp"
#include "backend/reference/reference_executable.hpp"
#include "base/check.hpp"

namespace lemma::reference {
namespace {

/// Matrices and tables stay in their format, vectors are decoded once.
class Weights final : public WeightSource {
 public:
  /// Returns the bytes that the weight takes beyond its mapping.
  std::size_t add(weights::Matrix matrix, backend::WeightUse use) {
    Weight weight;
    if (use == backend::WeightUse::kVector) weight.vector = weights::to_f32(matrix);
    weight.matrix = std::move(matrix);
    weights_.push_back(std::move(weight));
    return weights_.back().vector.size() * sizeof(float);
  }
  std::size_t size() const noexcept { return weights_.size(); }

  const weights::Matrix& matrix(backend::WeightId id) const noexcept override {
    return weights_[static_cast<std::size_t>(id)].matrix;
  }
  std::span<const float> vector(backend::WeightId id) const noexcept override {
    return weights_[static_cast<std::size_t>(id)].vector;
  }

 private:
  struct Weight {
    weights::Matrix matrix;
    std::vector<float> vector;
  };
  std::deque<Weight> weights_;
};

class ReferenceBackend final : public backend::Backend {
 public:
  std::string_view name() const noexcept override { return "reference"; }
  std::string description() const override {
    return "reference: the contract's f32 functions on one thread";
  }

  backend::WeightId add(weights::Matrix matrix, backend::WeightUse use) override {
    bytes_ += weights_.add(std::move(matrix), use);
    return static_cast<backend::WeightId>(weights_.size() - 1);
  }

  std::size_t weight_bytes() const noexcept override { return bytes_; }

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
  Weights weights_;
  std::size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<backend::Backend> make_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace lemma::reference
