// SPDX-License-Identifier: Apache-2.0
// Attention residual (Kimi K3): every few layers the running hidden state is laid aside, and the
// input of each sublayer is an attention over what was laid aside and the state that runs on. The
// list lives inside one step; it is no cache. This file owns the spec, which layers lay aside, and
// the mix of one row. Formulas: docs/contract.md, "Attention residual".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lemma::algorithm {

struct AttnResSpec {
  std::uint32_t block_size = 0;  ///< layers between two states that are laid aside
  std::uint32_t width = 0;       ///< D
  float eps = 1e-6f;             ///< of the norm that scores a candidate

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  /// Whether `layer` lays its input aside and starts the residual anew, after mixing the input of
  /// its attention and before adding to it.
  bool opens_block(std::uint32_t layer) const noexcept { return layer % block_size == 0; }
  /// States laid aside once the layers [0, layers) have run.
  std::uint32_t blocks(std::uint32_t layers) const noexcept {
    return layers / block_size + (layers % block_size != 0 ? 1 : 0);
  }
  friend bool operator==(const AttnResSpec&, const AttnResSpec&) = default;
};

/// out [D] = the mean of the candidates by softmax(proj . rms(candidate, norm)): the states laid
/// aside, `blocks` [n, D] oldest first, and then `current` [D]. The candidates themselves enter
/// as they are. `norm`, `proj` [D]; `scratch` [D + n + 1]; `out` may be `current`.
void attn_res_mix(const AttnResSpec& spec, std::span<const float> current,
                  std::span<const float> blocks, std::span<const float> norm,
                  std::span<const float> proj, std::span<float> scratch,
                  std::span<float> out) noexcept;

}  // namespace lemma::algorithm
