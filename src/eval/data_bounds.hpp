// SPDX-License-Identifier: Apache-2.0
// DataBounds: what rounding may do to one operation's output, worked out from the operation's own
// inputs and weights. Used where inputs are the same on both sides (teacher forcing), as sharp
// bounds in place of tolerances that hold for typical data only:
//   - products whose rows are rounded to int8, whole numbers or bf16: six sigma of each output, by
//     tolerance::int8_bound, whole_bound and bf16_bound; a feed-forward block carries its gate's
//     and up's through the activation and the down projection, where independent errors add as
//     squares;
//   - attention, latent and compressed too: tolerance::kAttend and kWholeAttend are derived for
//     scores up to 50; larger ones scale them. Its second term is that of the large terms which
//     cancel: the largest value, not the largest output.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "eval/row_stream.hpp"
#include "eval/site_tolerance.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::eval {

class DataBounds {
 public:
  /// `rounds[i]` says what operation i rounds its activations to. `model` must outlive this.
  DataBounds(const runtime::LoadedModel& model, std::vector<Rounding> rounds);

  /// Begins the next step of the one sequence, whose rows are all `entered` or all generated.
  void begin(bool entered);
  /// Enters the step's operations up to the one that writes `tensor`, from the rows that the
  /// reference had; those of `last_reader` must not have been dropped before.
  void advance(std::int32_t tensor, RowSource& source);
  /// The last operation that advance() takes `tensor`'s rows for, or -1.
  std::int32_t last_reader(std::int32_t tensor) const { return readers_[std::size_t(tensor)]; }
  /// The operation that writes `tensor`.
  std::int32_t writer(std::int32_t tensor) const { return writers_[std::size_t(tensor)]; }
  /// Bounds of `tensor` are no longer needed in this step.
  void forget(std::int32_t tensor);

  /// How much more than its tolerance each element of `tensor` [rows, width] may be off; may be
  /// empty.
  std::span<const double> slack(std::int32_t tensor) const;
  /// What multiplies the tolerance of each row of `tensor`; empty: one.
  std::span<const double> scale(std::int32_t tensor) const;

 private:
  bool reads(std::size_t operation) const;
  Rounding rounding() const;
  struct Product;
  Product product(backend::WeightId weight, const std::vector<float>& bias,
                  std::span<const float> in) const;
  void enter(const backend::Project& op, RowSource& source);
  void enter(const backend::Mlp& op, RowSource& source);
  void enter(const backend::Store& op, RowSource& source);
  void enter(const backend::Attend& op, RowSource& source);
  void enter(const backend::AttendLatent& op, RowSource& source);
  void enter(const backend::AttendCompressed& op, RowSource& source);
  void watch(backend::SlotId slot, std::uint32_t head_dim, std::size_t heads);
  void watch(const backend::Operation& operation);
  /// Rows of `out` whose largest scores are at most `scores`.
  void allow_scores(backend::Tensor out, std::span<const double> scores);

  backend::Program program_;  ///< with the ids of weights_
  std::vector<weights::Matrix> weights_;
  std::vector<Rounding> rounds_;                               ///< by operation
  bool entered_ = true;                                        ///< the step's rows
  std::vector<std::int32_t> readers_, writers_;                ///< operations, by tensor
  std::size_t next_ = 0;                                       ///< operation to enter
  std::map<std::int32_t, std::vector<double>> slack_, scale_;  ///< by tensor, of this step
  /// By slot.
  struct Stored {
    double largest = 0;           ///< of all elements so far
    std::uint32_t head_dim = 0;   ///< keys: of a KV head; latents and shared rows: of the row
    std::vector<double> longest;  ///< keys: the largest norm of each KV head so far
  };
  std::map<std::int32_t, Stored> stored_;
};

}  // namespace lemma::eval
