// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "backend/cpu/executable.hpp"
#include "backend/cpu/fault.hpp"
#include "backend/cpu/kernels/select.hpp"
#include "backend/host_state.hpp"
#include "base/check.hpp"
#include "base/mapped_file.hpp"
#include "base/raise.hpp"
#include "base/topology.hpp"

namespace lemma::cpu {
namespace {

base::Isa choose(const CpuOptions& options) {
  if (!options.isa) return base::best_isa();
  return base::choose_isa(base::cpu_features(), base::to_string(*options.isa));
}

const KernelTable& choose_kernels(const CpuOptions& options, base::Isa isa) noexcept {
  if (options.kernels != nullptr) return *options.kernels;
  return options.numerics == backend::Numerics::kStrict ? strict_kernels(isa) : kernels(isa);
}

/// The thread count and the reason for it.
struct Threads {
  int count;
  std::vector<int> kept_to;
  std::string reason;
};

Threads choose_threads(const CpuOptions& options) {
  if (options.threads < 0) {
    base::raise(ErrorKind::kUsage, "threads: expected 0 (automatic) or more, found {}",
                options.threads);
  }
  if (options.threads > 0)
    return {options.threads, {}, fmt::format("{} threads, as asked", options.threads)};
  const base::ThreadDefaults defaults =
      base::default_threads(base::read_machine(base::allowed_cpus()));
  return {defaults.decode, defaults.kept_to, defaults.reason};
}

class CpuBackend final : public backend::Backend {
 public:
  CpuBackend(const CpuOptions& options, const Threads& threads)
      : isa_(choose(options)),
        kernels_(choose_kernels(options, isa_)),
        numerics_(options.numerics),
        repack_(options.repack),
        mapped_(options.mapped),
        reason_(threads.reason),
        pool_(threads.count, threads.kept_to) {}

  std::string_view name() const noexcept override { return "cpu"; }
  std::string description() const override {
    return fmt::format("cpu: {} kernels, {}{}{}", base::to_string(isa_), reason_,
                       numerics_ == backend::Numerics::kStrict ? ", strict numerics" : "",
                       repack_ ? "" : ", weights as in the file");
  }

  backend::WeightId add(weights::Matrix matrix, backend::WeightUse use) override {
    const bool stays = std::binary_search(mapped_.begin(), mapped_.end(), matrix.name);
    const bool pack = repack_ && !stays;
    weights_.push_back(
        make_weight(std::move(matrix), use, numerics_, pack ? &memory_ : nullptr, pool_));
    Weight& weight = weights_.back();
    if (weight.product == Product::kFloat || weight.product == Product::kInt8)
      weight.entered = kernels_.entered[static_cast<std::size_t>(weight.kernel)];
    if (stays && weight.mapped()) {
      weight.scattered = true;
      base::expect_scattered_reads({weight.matrix.bytes, weight.matrix.size_bytes()});
    }
    bytes_ += weight.panels.size() + weight.vector.size() * sizeof(float);
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
    auto* const host = dynamic_cast<backend::HostState*>(&state);
    LEMMA_CHECK(host != nullptr);
    return std::make_unique<CpuExecutable>(kernels_, pool_, weights_, program, *host, options);
  }

 private:
  const base::Isa isa_;
  const KernelTable& kernels_;
  const backend::Numerics numerics_;
  const bool repack_;
  const std::vector<std::string> mapped_;
  const std::string reason_;
  base::ThreadPool pool_;
  PanelMemory memory_;
  std::deque<Weight> weights_;
  std::size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<backend::Backend> make_backend(const CpuOptions& options) {
  return with_fault(std::make_unique<CpuBackend>(options, choose_threads(options)));
}

}  // namespace lemma::cpu
