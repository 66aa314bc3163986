// SPDX-License-Identifier: Apache-2.0
// Weights that a Hugging Face checkpoint stores in a packed form, decoded when they are asked for:
// what each form's bytes mean stands at its function. The result is exact: BF16 where every value
// has at most 8 significant bits, else F32.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/ranges.h>

#include "base/raise.hpp"
#include "weights/safetensors/translation.hpp"

namespace lemma::weights::safetensors {
namespace {

using base::raise;

constexpr std::uint64_t kMxBlock = 32;

/// The sixteen values of E2M1: sign, two exponent bits, one fraction bit.
constexpr std::array<float, 16> kE2m1 = {0.f,  0.5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                         -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

/// A value of few significant bits as BF16; the low half of its f32 is empty.
std::uint16_t exact_bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

}  // namespace

// Element 2 i of a block stands in the low nibble of byte i, element 2 i + 1 in the high one. The
// block's scale is 2^(s - 127); 255 would be NaN.
Source Translation::take_mxfp4(const std::string& name) {
  const auto of = [&](const char* suffix) -> const Stored& {
    const auto found = names_.find(name + suffix);
    if (found == names_.end()) raise(ErrorKind::kBadFile, "missing tensor '{}{}'", name, suffix);
    used_.insert(found->first);
    if (found->second->dtype != "U8")
      raise(ErrorKind::kBadFile, "tensor '{}': expected U8, found {}", found->second->name,
            found->second->dtype);
    return *found->second;
  };
  const Stored& blocks = of("_blocks");
  const Stored& scales = of("_scales");
  std::vector<std::uint64_t> shape = blocks.shape;
  if (shape.size() < 2 || shape.back() != kMxBlock / 2 ||
      !std::equal(scales.shape.begin(), scales.shape.end(), shape.begin(), shape.end() - 1))
    raise(ErrorKind::kBadFile,
          "tensors '{}' [{}] and '{}' [{}]: expected blocks of 16 bytes and a scale for each",
          blocks.name, fmt::join(blocks.shape, ", "), scales.name, fmt::join(scales.shape, ", "));
  shape.pop_back();
  shape.back() *= kMxBlock;
  Source out{.name = name, .format = Format::kBF16, .shape = std::move(shape), .bytes = {}};
  out.make = [data = blocks.bytes, scale = scales.bytes](std::span<std::byte> bytes) {
    for (std::size_t b = 0; b < scale.size(); ++b) {
      const int exponent = std::to_integer<int>(scale[b]) - 127;
      std::array<std::uint16_t, 16> values;
      for (std::size_t v = 0; v < 16; ++v) values[v] = exact_bf16(std::ldexp(kE2m1[v], exponent));
      for (std::size_t i = 0; i < kMxBlock; ++i) {
        const auto byte = std::to_integer<std::uint32_t>(data[b * kMxBlock / 2 + i / 2]);
        const std::uint16_t value = values[i % 2 == 0 ? byte & 15u : byte >> 4];
        std::memcpy(bytes.data() + (b * kMxBlock + i) * sizeof value, &value, sizeof value);
      }
    }
  };
  return out;
}

}  // namespace lemma::weights::safetensors
