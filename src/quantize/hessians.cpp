// SPDX-License-Identifier: Apache-2.0
#include "quantize/hessians.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace lemma::quantize {

Hessians::Hessians(runtime::LoadedModel& model, Windows windows, const CalibrationOptions& options,
                   int threads, std::uint64_t budget)
    : model_(model),
      windows_(std::move(windows)),
      options_(options),
      pool_(threads),
      budget_(budget),
      inputs_(matrix_inputs(model)) {}

bool Hessians::knows(std::string_view tensor) const {
  const auto found = inputs_.uses.find(tensor);
  if (found == inputs_.uses.end() || found->second.size() != 1) return false;
  const weights::TensorInfo* const info = model_.checkpoint().find(tensor);
  return info != nullptr && inputs_.inputs[found->second[0].input].cols == info->row_elements();
}

void Hessians::expect(std::span<const std::string> tensors) {
  order_.clear();
  for (const std::string& tensor : tensors) {
    const std::size_t input = inputs_.uses.find(tensor)->second[0].input;
    for (std::size_t m = 0; m < inputs_.inputs[input].matrices(); ++m) {
      const Key key{input, m};
      if (std::find(order_.rbegin(), order_.rend(), key) == order_.rend()) order_.push_back(key);
    }
  }
}

Hessians::Hessian Hessians::at(std::string_view tensor, std::size_t matrix) {
  LEMMA_CHECK(knows(tensor));
  const std::size_t input = inputs_.uses.find(tensor)->second[0].input;
  const Key key{input, inputs_.inputs[input].experts == 0 ? 0 : matrix};
  if (!held_.contains(key)) collect(key);
  const Unit& unit = held_.at(key);
  return {unit.sum, unit.rows};
}

/// One run of the text for `first` and for what follows it and fits.
void Hessians::collect(const Key& first) {
  held_.clear();
  std::vector<bool> wanted(inputs_.inputs.size());
  std::uint64_t bytes = 0;
  const auto hold = [&](const Key& key) {
    const std::uint64_t cols = inputs_.inputs[key.input].cols;
    bytes += cols * (cols + kPanel) * sizeof(float);
    if (!held_.empty() && bytes > budget_) return false;
    Unit& unit = held_[key];
    unit.sum.assign(cols * cols, 0.f);
    unit.panel.assign(kPanel * cols, 0.f);
    wanted[key.input] = true;
    return true;
  };
  hold(first);
  auto next = std::find(order_.begin(), order_.end(), first);
  while (next != order_.end() && ++next != order_.end() && hold(*next)) {
  }
  calibrate(model_, inputs_, wanted, windows_, options_,
            [&](std::size_t input, std::size_t matrix, std::span<const float> row) {
              const auto unit = held_.find({input, matrix});
              if (unit != held_.end()) take(unit->second, row);
            });
  for (auto& [key, unit] : held_) {
    flush(unit, inputs_.inputs[key.input].cols);
    unit.panel = {};
  }
  ++runs_;
}

void Hessians::take(Unit& unit, std::span<const float> row) {
  std::copy(row.begin(), row.end(),
            unit.panel.begin() + static_cast<std::ptrdiff_t>(unit.filled * row.size()));
  unit.rows += 1;
  if (++unit.filled == kPanel) flush(unit, row.size());
}

void Hessians::flush(Unit& unit, std::size_t cols) {
  if (unit.filled == 0) return;
  std::fill(unit.panel.begin() + static_cast<std::ptrdiff_t>(unit.filled * cols), unit.panel.end(),
            0.f);
  unit.filled = 0;
  // An element is touched by one thread, and takes the rows four by four.
  pool_.parallel_for(cols, 16, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      float* const sum = unit.sum.data() + i * cols;
      for (std::size_t r = 0; r < kPanel; r += 4) {
        const float* const x0 = unit.panel.data() + r * cols;
        const float* const x1 = x0 + cols;
        const float* const x2 = x1 + cols;
        const float* const x3 = x2 + cols;
        const float a = x0[i], b = x1[i], c = x2[i], d = x3[i];
        for (std::size_t j = 0; j <= i; ++j)
          sum[j] += (a * x0[j] + b * x1[j]) + (c * x2[j] + d * x3[j]);
      }
    }
  });
}

}  // namespace lemma::quantize
