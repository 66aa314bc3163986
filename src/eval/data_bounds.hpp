// SPDX-License-Identifier: Apache-2.0
// DataBounds: what rounding may do to one operation's output, worked out from the operation's own
// inputs and weights. Used where inputs are the same on both sides (teacher forcing), as sharp
// bounds in place of tolerances that hold for typical data only:
//   - products of quantized weights with int8 activations: six sigma of each output, by
//     tolerance::int8_bound; a feed-forward block carries its gate's and up's through the
//     activation and the down projection, where independent errors add as squares;
//   - attention: tolerance::kAttend is derived for scores up to 50; larger ones scale it. Its
//   second
//     term is that of the large terms which cancel: the largest value, not the largest output.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::eval {

/// The reference's rows of a step, by Tensor::id.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual std::span<const float> rows(std::int32_t tensor) const = 0;
};

class DataBounds {
 public:
  /// `rounds[i]` says whether operation i rounds its activations to int8. `model` must outlive
  /// this.
  DataBounds(const runtime::LoadedModel& model, std::vector<bool> rounds);

  /// Takes the reference's rows of the next step of the one sequence.
  void enter(const RowSource& source);

  /// How much more than its tolerance each element of `tensor` [rows, width] may be off; may be
  /// empty.
  std::span<const double> slack(std::int32_t tensor) const;
  /// What multiplies the tolerance of each row of `tensor`; empty: one.
  std::span<const double> scale(std::int32_t tensor) const;

 private:
  void enter(const backend::Project& op, const RowSource& source);
  void enter(const backend::Mlp& op, const RowSource& source);
  void enter(const backend::Store& op, const RowSource& source);
  void enter(const backend::Attend& op, const RowSource& source);

  backend::Program program_;  ///< with the ids of weights_
  std::vector<weights::Matrix> weights_;
  std::vector<bool> rounds_;                                   ///< by operation
  std::map<std::int32_t, std::vector<double>> slack_, scale_;  ///< by tensor, of this step
  /// By slot.
  struct Stored {
    std::vector<float> rows;      ///< of this step
    double largest = 0;           ///< of all elements so far
    std::vector<double> longest;  ///< keys: the largest norm of each KV head so far
  };
  std::map<std::int32_t, Stored> stored_;
};

}  // namespace lemma::eval
