// SPDX-License-Identifier: Apache-2.0
// Strips of the formats whose nibbles choose values of a table: IQ4, MXFP4 and NVFP4. The table
// leads a panel (packing.cpp), and nibbles stay as they are.
//
// Internal to packing. Pure.
#pragma once

#include "backend/cpu/packing_strips.hpp"
#include "base/half.hpp"
#include "weights/formats/codebook.hpp"

namespace lemma::cpu::packing {

struct IQ4_NLStrip : PairedStrip<weights::BlockIQ4_NL, 4> {
  static constexpr const weights::formats::Codebook& kTable = weights::formats::kIQ4Values;
  static void take(const std::byte* block, std::size_t i, Strip& to) noexcept {
    to.halves[i] = at(block).d;
    std::memcpy(to.words + i * kWords, at(block).qs, 16);
  }
};

struct IQ4_XSStrip : BlockStrip<weights::BlockIQ4_XS> {
  static constexpr const weights::formats::Codebook& kTable = weights::formats::kIQ4Values;
  static constexpr Unit kUnit{.first = 1, .bytes = 8, .words = 32};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    store(to.first, base::f16_to_f32(at(block).d));
    for (std::size_t j = 0; j < 8; ++j) {
      const int low = at(block).scales_l[j / 2] >> (j % 2 * 4) & 15;
      const int high = at(block).scales_h >> (2 * j) & 3;
      to.bytes[j] = static_cast<std::uint8_t>((low | high << 4) - 32);
    }
    std::memcpy(to.words, at(block).qs, 128);
  }
};

/// The values of E2M1 and 12 more, so that none is below 0.
constexpr weights::formats::Codebook raised_e2m1() noexcept {
  weights::formats::Codebook table = weights::formats::kE2M1Values;
  for (auto& value : table) value = static_cast<std::int8_t>(value + 12);
  return table;
}

/// Four blocks a unit, which share a line of scales; fewer at the end of a row.
struct MXFP4Strip {
  static constexpr weights::formats::Codebook kTable = raised_e2m1();
  static constexpr Unit kUnit{.bytes = 4, .words = 16};
  static constexpr std::size_t kBlocks = 4, kUnits = 1, kBlockBytes = sizeof(weights::BlockMXFP4);
  static void take(const std::byte* bytes, std::size_t i, Strip& to) noexcept {
    const auto& block = *reinterpret_cast<const weights::BlockMXFP4*>(bytes);
    to.bytes[i] = block.e;
    std::memcpy(to.words + i * 4, block.qs, 16);
  }
};

struct NVFP4Strip : BlockStrip<weights::BlockNVFP4> {
  static constexpr weights::formats::Codebook kTable = raised_e2m1();
  static constexpr Unit kUnit{.bytes = 4, .words = 8};
  /// The sign is not read, and 7f is 0.
  static std::uint32_t plain_scales(std::uint32_t scales) noexcept {
    const std::uint32_t plain = scales & 0x7f7f7f7fu;
    const std::uint32_t full = (plain + 0x01010101u) & 0x80808080u;
    return plain & ~(full - (full >> 7));
  }
  static void take(const std::byte* bytes, std::size_t, Strip& to) noexcept {
    const weights::BlockNVFP4& block = at(bytes);
    store(to.bytes, plain_scales(load<std::uint32_t>(block.d)));
    for (std::size_t half = 0; half < 2; ++half) {
      const auto a = load<std::uint64_t>(block.qs + half * 16);
      const auto b = load<std::uint64_t>(block.qs + half * 16 + 8);
      constexpr std::uint64_t kLow = 0x0f0f0f0f0f0f0f0fu;
      store(to.words + half * 4, (a & kLow) | (b & kLow) << 4);
      store(to.words + half * 4 + 2, (a >> 4 & kLow) | (b & ~kLow));
    }
  }
};

}  // namespace lemma::cpu::packing
