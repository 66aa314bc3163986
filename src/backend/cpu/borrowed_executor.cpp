// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "backend/cpu/executor.hpp"
#include "backend/reference/operations.hpp"

namespace lemma::cpu {
namespace {

/// The backend's weights as the contract's operations read them: a packed matrix keeps its file
/// bytes.
class HeldWeights final : public reference::WeightSource {
 public:
  explicit HeldWeights(const Context& context) : context_(context) {}
  const weights::Matrix& matrix(backend::WeightId id) const noexcept override {
    return context_.weight(id).matrix;
  }
  std::span<const float> vector(backend::WeightId id) const noexcept override {
    return context_.vector(id);
  }

 private:
  const Context& context_;
};

class BorrowedExecutor final : public Executor {
 public:
  BorrowedExecutor(backend::Operation operation, const Context& context)
      : operation_(std::move(operation)),
        weights_(context),
        operations_({context.program, weights_, context.state, context.arena},
                    std::span(&operation_, 1), context.max_rows, context.max_logit_rows) {}

  void run(Context& context) noexcept override {
    operations_.run(operation_, context.step(), [&](std::size_t row, backend::Tensor tensor) {
      context.mark(row);
      context.settle(tensor);
    });
  }

  std::string implementation() const override { return "reference"; }
  std::size_t scratch_bytes() const noexcept override { return operations_.scratch_bytes(); }
  bool borrowed() const noexcept override { return true; }

 private:
  const backend::Operation operation_;
  const HeldWeights weights_;
  reference::Operations operations_;
};

}  // namespace

std::unique_ptr<Executor> borrow(backend::Operation operation, const Context& context) {
  return std::make_unique<BorrowedExecutor>(std::move(operation), context);
}

}  // namespace lemma::cpu
