// SPDX-License-Identifier: Apache-2.0
// Limits of one rendering, and Budget, which counts against them. A template comes with a model
// file and is as hostile as any file: whatever it does, work, memory, depth and output end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/raise.hpp"

namespace lemma::text::jinja {

struct Limits {
  std::uint64_t steps = 50'000'000;  ///< nodes visited, elements and code points touched by filters
  std::size_t output = std::size_t{64} << 20;  ///< bytes of the result and of any one string
  std::size_t memory = std::size_t{1} << 30;   ///< bytes of all strings and lists ever made
  std::uint32_t calls = 200;   ///< nested calls of macros, callers and recursive loops
  std::uint32_t depth = 1500;  ///< nested evaluations in all
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const noexcept { return limits_; }

  void charge(std::uint64_t steps) {
    if (steps > limits_.steps - steps_)
      base::raise(ErrorKind::kTemplate, "the template takes more than {} steps", limits_.steps);
    steps_ += steps;
  }

  /// A string or list of `bytes` is about to be made.
  void allocate(std::size_t bytes) {
    if (bytes > limits_.output)
      base::raise(ErrorKind::kTemplate, "the template makes a text or list of more than {} bytes",
                  limits_.output);
    if (bytes > limits_.memory - memory_)
      base::raise(ErrorKind::kTemplate, "the template makes more than {} bytes of text and lists",
                  limits_.memory);
    memory_ += bytes;
    charge(bytes / 64);
  }

 private:
  Limits limits_;
  std::uint64_t steps_ = 0;
  std::size_t memory_ = 0;
};

}  // namespace lemma::text::jinja
