// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

template <typename Block>
void unpack_bytes(const std::byte* bytes, Unpacked& out) noexcept {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  unpack(block, out);
}

}  // namespace

Unpack* unpacker(Format format) noexcept {
  switch (format) {
    case Format::kQ4_1:
      return unpack_bytes<BlockQ4_1>;
    case Format::kQ5_1:
      return unpack_bytes<BlockQ5_1>;
    case Format::kQ2_K:
      return unpack_bytes<BlockQ2_K>;
    case Format::kQ3_K:
      return unpack_bytes<BlockQ3_K>;
    case Format::kQ5_K:
      return unpack_bytes<BlockQ5_K>;
    case Format::kQ8_K:
      return unpack_bytes<BlockQ8_K>;
    case Format::kIQ1_S:
      return unpack_bytes<BlockIQ1_S>;
    case Format::kIQ1_M:
      return unpack_bytes<BlockIQ1_M>;
    case Format::kIQ2_XXS:
      return unpack_bytes<BlockIQ2_XXS>;
    case Format::kIQ2_XS:
      return unpack_bytes<BlockIQ2_XS>;
    case Format::kIQ2_S:
      return unpack_bytes<BlockIQ2_S>;
    case Format::kIQ3_XXS:
      return unpack_bytes<BlockIQ3_XXS>;
    case Format::kIQ3_S:
      return unpack_bytes<BlockIQ3_S>;
    case Format::kIQ4_NL:
      return unpack_bytes<BlockIQ4_NL>;
    case Format::kIQ4_XS:
      return unpack_bytes<BlockIQ4_XS>;
    case Format::kTQ1_0:
      return unpack_bytes<BlockTQ1_0>;
    case Format::kTQ2_0:
      return unpack_bytes<BlockTQ2_0>;
    case Format::kMXFP4:
      return unpack_bytes<BlockMXFP4>;
    case Format::kNVFP4:
      return unpack_bytes<BlockNVFP4>;
    default:
      return nullptr;
  }
}

}  // namespace lemma::weights::formats
