// SPDX-License-Identifier: Apache-2.0
// Reads the bytes of one GGUF file, version 2 or 3, little-endian. The bytes are hostile until
// checked: a count is compared with the bytes that remain before anything is allocated for it, and
// every tensor lies whole, aligned and alone within the data section when `parse` returns. Bytes
// that no tensor covers, between or after them, are tolerated. Knows nothing of files and of what
// the keys mean, except general.alignment. Pure and thread-safe.
//
//   offset 0   "GGUF" | version u32 | tensor count u64 | key count u64
//          24  key count  x  { key: string | type u32 | value }
//              tensor count  x  { name: string | n u32 | n sizes u64, innermost first | type u32 |
//                                 offset u64, from the start of the data section }
//              zeros up to the next multiple of general.alignment (32 without the key)
//              data section
//   string = length u64 | bytes;   array = type u32 | count u64 | values
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weights/checkpoint.hpp"
#include "weights/metadata.hpp"

namespace lemma::weights::gguf {

struct Contents {
  std::uint32_t version = 0;
  Metadata metadata;
  std::vector<TensorInfo> tensors;  ///< in the file's order; their bytes point into the input
};

/// `name` stands in front of every message. Throws kBadFile for a damaged file and kUnsupported for
/// a sound one that lemma does not read (version 1, big-endian, an unknown block format).
Contents parse(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lemma::weights::gguf
