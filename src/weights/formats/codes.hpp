// SPDX-License-Identifier: Apache-2.0
// Codes: the formats in which each element of a block has a whole number of its own on an even
// grid, so that once the block's scales stand, any element can be given any code by itself. Whoever
// chooses codes with more in view than one block (error propagation) starts from an encoded block,
// reads its grid and writes the codes back. The layouts are drawn in each format's own file. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weights/format.hpp"

namespace lemma::weights::formats {

/// Element i is steps[i] * code - offsets[i], in f32 and as the format decodes it.
struct Grid {
  std::array<float, 256> steps, offsets;
  int low = 0, high = 0;  ///< of codes
};

bool has_codes(Format format) noexcept;
/// The grid of one encoded block. The format must have codes.
void read_grid(Format format, const std::byte* block, Grid& grid) noexcept;
/// Puts other codes, one an element, in place of a block's; its scales stay.
void write_codes(Format format, std::span<const std::int8_t> codes, std::byte* block) noexcept;

}  // namespace lemma::weights::formats
