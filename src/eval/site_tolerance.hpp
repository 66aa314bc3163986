// SPDX-License-Identifier: Apache-2.0
// How far each site of a program may be from the reference: the tolerance of the operation that
// writes it (algorithm/tolerance.hpp), and, where the backend runs on its own rows, what the layers
// before may have added.
//
// Growth over layers. With f32 activations the stream's error grows linearly,
// tolerance::hidden(layers). Where activations are rounded to int8, the layers' errors are
// independent of each other and large beside any amplification, so that they add as a random walk:
// sqrt(layers) times one block's tolerance. Rows of a state that is not f32 are rounded on both
// sides, and values that differ by an f32 rounding can land on neighbouring codes; a site then gets
// the tolerance of activations of that width on top. Teacher forcing needs none of this: inputs and
// state are equal, and data_bounds.hpp adds what int8 activations may do to the very data, where it
// knows (project, mlp); other products of quantized weights keep their int8 tolerance. Choices have
// no tolerance of their own. Products of 16-bit weights whose entered rows are rounded, to whole
// numbers or to bf16, are treated in the same way, with tolerances of their own, and attention of
// entered rows in whole numbers with its own.
//
// Where rounding errors have gone through layers, only their mean square can be foreseen: a norm
// may blow up a row that cancelled, and no largest error holds for all rows. The int8 tolerances
// are six sigma over a row's largest value of three rms, that is 2 sigma / rms; half of them is
// the limit for the rms error, and that is what such sites are held to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "algorithm/row_formats.hpp"
#include "algorithm/tolerance.hpp"
#include "backend/backend.hpp"

namespace lemma::eval {

/// What an operation's products round their activations to.
struct Rounding {
  bool int8 = false;
  bool bf16 = false;             ///< entered rows alone
  bool both = false;             ///< bf16: weights as well
  bool whole = false;            ///< entered rows and weights, to whole numbers of 13 bits
  bool whole_attention = false;  ///< attention of entered rows in whole numbers
  explicit operator bool() const noexcept { return int8 || bf16 || whole || whole_attention; }
  friend Rounding operator|(Rounding a, Rounding b) noexcept {
    return {a.int8 || b.int8, a.bf16 || b.bf16, a.both || b.both, a.whole || b.whole,
            a.whole_attention || b.whole_attention};
  }
};

struct SiteTolerance {
  std::string name;                    ///< "layers.3.attention.query"
  std::string kind;                    ///< the name without its layer
  std::optional<std::uint32_t> layer;  ///< absent outside the layers
  std::string operation;               ///< who writes it
  algorithm::Tolerance tolerance;
  std::optional<double> rms_limit;  ///< if present, it decides and not the tolerance
  Rounding rounds;                  ///< of the operation
};

struct ToleranceOptions {
  /// Products of quantized weights round their activations to int8.
  bool int8 = false;
  bool teacher_forced = false;
  algorithm::RowFormat state = algorithm::RowFormat::kF32;
};

/// One entry for each tensor of `program`, by Tensor::id, and one for the logits at the end.
/// `placements` are the backend's, for the formats of weights.
std::vector<SiteTolerance> site_tolerances(const backend::Program& program,
                                           const std::vector<backend::Placement>& placements,
                                           const ToleranceOptions& options);

/// True if a list of format names, as in a Placement, holds a block-quantized one.
bool is_quantized(const std::string& formats);

}  // namespace lemma::eval
