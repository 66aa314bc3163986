// SPDX-License-Identifier: Apache-2.0
// SiteRows: an observer that keeps all rows of the tensors that it was asked for, by position of
// one sequence. For texts short enough to be looked at. Owned by one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"

namespace lemma::eval {

class SiteRows final : public backend::Observer {
 public:
  explicit SiteRows(const backend::Program& program)
      : program_(program), wanted_(program.tensors.size()), rows_(program.tensors.size()) {}

  /// Nothing happens for an absent tensor.
  void want(backend::Tensor tensor) {
    if (tensor) wanted_[std::size_t(tensor.id)] = true;
  }
  /// [T, width]; empty for a tensor that was not asked for.
  std::span<const float> rows(std::int32_t tensor) const { return rows_[std::size_t(tensor)]; }
  std::span<const float> row(std::int32_t tensor, std::size_t position) const {
    const std::size_t width = program_.tensors[std::size_t(tensor)].width;
    return rows(tensor).subspan(position * width, width);
  }

  bool wants(const backend::Program::Site& site) override {
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (program_.tensors[i].name == site.name) return wanted_[i];
    return false;
  }
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override {
    std::vector<float>& kept = rows_[std::size_t(tensor)];
    const std::size_t at = std::size_t{step.segments[0].past} * site.width;
    kept.resize(std::max(kept.size(), at + rows.size()));
    std::copy(rows.begin(), rows.end(), kept.begin() + std::ptrdiff_t(at));
  }

 private:
  const backend::Program& program_;
  std::vector<bool> wanted_;
  std::vector<std::vector<float>> rows_;  ///< by tensor
};

}  // namespace lemma::eval
