// SPDX-License-Identifier: Apache-2.0
// The points of the grids that panels choose from by index, as kernels look them up. Of a point of
// eight coordinates (IQ2) the levels of 0 .. 3 are the pairs of bits of `low`, those of 4 .. 7 of
// `high`; of a point of four (IQ3) those of 0, 1 are the nibbles of `low`, those of 2, 3 of `high`.
//
// The tables are made on first use, by code of no instruction set's own. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lemma::cpu {

template <std::size_t Count>
struct GridPoints {
  alignas(64) std::uint8_t low[Count], high[Count];
  alignas(64) std::uint16_t words[Count];  ///< low | high << 8
};

/// Points as words of magnitudes, a byte each: of eight columns (IQ2) or four (IQ3), those of
/// IQ3_XXS halved.
template <typename Word, std::size_t Count>
struct GridLoads {
  alignas(64) Word words[Count];
};

const GridLoads<std::uint64_t, 256>& iq2_xxs_loads() noexcept;
const GridLoads<std::uint32_t, 256>& iq3_xxs_loads() noexcept;
const GridLoads<std::uint32_t, 512>& iq3_s_loads() noexcept;

const GridPoints<256>& iq2_xxs_points() noexcept;
const GridPoints<256>& iq3_xxs_points() noexcept;
const GridPoints<512>& iq3_s_points() noexcept;

}  // namespace lemma::cpu
