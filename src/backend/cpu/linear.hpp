// SPDX-License-Identifier: Apache-2.0
// Linear: one weight of a product, as an executor uses it: a range of its outputs for all rows,
// with bias and clamp. Stateless apart from what it points at; ranges run on different threads.
//
// A weight that stays as the file has it is packed panel by panel right before the kernel reads it,
// into memory of the running thread that stays in its cache: the kernels and the bits are those of
// a packed weight.
#pragma once

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "backend/cpu/context.hpp"

namespace lemma::cpu {

/// Memory for panels that are packed as they are used, one piece for each thread. Shape: bytes.
class PanelScratch {
 public:
  PanelScratch(const Context& context, std::span<const std::size_t> shape);
  std::size_t bytes() const noexcept { return memory_.size(); }
  std::size_t piece() const noexcept { return piece_; }

  /// A piece that nobody else has. At most as many threads as the pool's may hold one at a time.
  class Lease {
   public:
    explicit Lease(PanelScratch& scratch) noexcept;
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    std::byte* data() const noexcept { return data_; }

   private:
    std::atomic<bool>* taken_;
    std::byte* data_;
  };

 private:
  struct alignas(64) Flag {
    std::atomic<bool> taken{false};
  };
  base::AlignedBuffer memory_;
  std::vector<Flag> flags_;
  std::size_t piece_;
};

class Linear {
 public:
  /// Outputs of one chunk: what a thread takes at a time. Four panels, so that a kernel may read
  /// four streams side by side; a multiple of 32, so that a chunk of a hidden row is whole groups.
  static constexpr std::size_t kChunk = 4 * kPanelRows;
  /// Up to so many rows memory decides, and threads read whole matrices in order.
  static constexpr std::size_t kFewRows = 4;

  Linear() = default;
  Linear(const Context& context, backend::WeightId weight, backend::WeightId bias,
         float clamp = 0.f);

  explicit operator bool() const noexcept { return weight_ != nullptr; }
  const Weight& weight() const noexcept { return *weight_; }
  std::size_t outputs() const noexcept { return static_cast<std::size_t>(weight_->matrix.rows); }
  std::size_t cols() const noexcept { return static_cast<std::size_t>(weight_->matrix.cols); }
  std::size_t chunks() const noexcept { return (outputs() + kChunk - 1) / kChunk; }
  std::size_t chunk_outputs(std::size_t chunk) const noexcept;
  /// Multiply-adds for `rows` rows.
  std::size_t work(std::size_t rows) const noexcept { return rows * outputs() * cols(); }
  /// How it runs, as Weight::describe() says it.
  std::string describe() const { return weight_->describe(exact_); }
  bool wants_int8() const noexcept { return weight_->product == Product::kInt8; }
  /// Whether entered rows are read in whole numbers where somebody has rounded them.
  bool wants_whole() const noexcept { return weight_->entered == EnteredRows::kWhole; }

  /// Says that the weight's rows [first, first + count) will be read soon. Of use where they stay
  /// in the file and others are not read.
  void expect(std::size_t first, std::size_t count) const noexcept;
  /// The outputs [64 chunk, ...) of every row. `out` points at the chunk's first output of row 0.
  void run(const KernelTable& kernels, const ProductInput& in, std::size_t chunk, float* out,
           std::size_t out_stride) const noexcept;
  /// The outputs [first, first + count) of every row, at most kChunk: of one matrix of a stack, for
  /// example, whose rows may begin anywhere in a panel. `out` points at output `first` of row 0.
  void run(const KernelTable& kernels, const ProductInput& in, std::size_t first, std::size_t count,
           float* out, std::size_t out_stride) const noexcept;

 private:
  /// The outputs of all rows from panels that are there, `first` counted from the first of them.
  void multiply_panels(const KernelTable& kernels, const ProductInput& in, const std::byte* panels,
                       std::size_t first, std::size_t count, float* out,
                       std::size_t out_stride) const noexcept;
  /// The outputs of one run of rows; `out` points at output `first` of the run's first row.
  void multiply(const KernelTable& kernels, const ProductInput& in, const ClassRun& run,
                const std::byte* panels, std::size_t count, float* out,
                std::size_t out_stride) const noexcept;
  void multiply_unaligned(const KernelTable& kernels, const ProductInput& in, const ClassRun& run,
                          const std::byte* panels, std::size_t lead, std::size_t count, float* out,
                          std::size_t out_stride) const noexcept;
  void multiply_mapped(const KernelTable& kernels, const ProductInput& in, std::size_t first,
                       std::size_t count, float* out, std::size_t out_stride) const noexcept;
  void multiply_decoded(const KernelTable& kernels, const ProductInput& in, const ClassRun& run,
                        std::size_t first, std::size_t count, float* out,
                        std::size_t out_stride) const noexcept;

  const Weight* weight_ = nullptr;
  PanelScratch* scratch_ = nullptr;  ///< of a mapped weight
  std::span<const float> bias_;
  float clamp_ = 0.f;
  bool exact_ = false;  ///< what is chosen by its outputs is not left to rounded rows
};

/// How several products run, and the formats of their weights, each named once. Those that are not
/// there are left out.
std::string implementations(std::initializer_list<const Linear*> linears);
std::string formats(std::initializer_list<const Linear*> linears);

}  // namespace lemma::cpu
