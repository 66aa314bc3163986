// SPDX-License-Identifier: Apache-2.0
// Rounding: the rows that products read, in the form that they want. Who made the rows may have
// rounded them already; a few are rounded by the calling thread, many by a phase of the region. A
// step of generated rows rounds nothing for products that round entered ones alone.
#pragma once

#include <algorithm>
#include <cstddef>

#include "backend/cpu/context.hpp"
#include "backend/cpu/linear.hpp"

namespace lemma::cpu {

/// The input of products, rounded if they want that: by whoever made it, here, or in a
/// phase of its own.
class Rounding {
 public:
  Rounding(backend::Tensor in, bool wanted) : in_(in), wanted_(wanted) {}

  backend::Tensor reads_quantized() const noexcept { return wanted_ ? in_ : backend::Tensor{}; }
  /// The rows for the running step; whether they are still to be rounded, by `phase`.
  ProductInput begin(Context& context) noexcept {
    ProductInput in{context.arena.data(in_), {}, context.runs()};
    to_ = nullptr;
    if (!wanted_ || !context.rounds(in_)) return in;
    const QuantizedBuffer* rounded = context.find_quantized(in_);
    if (rounded == nullptr && context.rows() >= Context::kFewRows) {
      rounded = to_ = &context.begin_quantized(in_);
    }
    in.quantized = rounded != nullptr ? rounded->rows(in_.width) : context.quantized(in_);
    return in;
  }
  bool pending() const noexcept { return to_ != nullptr; }
  Phase phase(const Context& context) const noexcept {
    return {(context.rows() + Context::kRowGrain - 1) / Context::kRowGrain,
            context.rows() * in_.width};
  }
  void run_item(Context& context, std::size_t item) const noexcept {
    const std::size_t begin = item * Context::kRowGrain;
    const std::size_t end = std::min(begin + Context::kRowGrain, context.rows());
    context.round_rows(in_, begin, end, *to_);
  }

 private:
  backend::Tensor in_;
  bool wanted_;
  const QuantizedBuffer* to_ = nullptr;  ///< of the running step
};

}  // namespace lemma::cpu
