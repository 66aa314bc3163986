// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: which tensors it holds, and where. The layout is that of
// https://huggingface.co/docs/safetensors: eight bytes with the header's length, little-endian; the
// header, one JSON object from name to {"dtype", "shape", "data_offsets"} and, optionally,
// "__metadata__" from string to string; then the tensors' bytes, row-major, little-endian, without
// a hole. Whatever is parsed here has been checked against the file's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lemma::weights {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< as the file spells it: "F32", "BF16", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< bytes, from the file's start
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Bytes of one element of a dtype; 0 for one that lemma does not know.
std::size_t safetensors_element_bytes(std::string_view dtype) noexcept;

/// Parses the header of `file`, all bytes of a file called `path` in messages. Throws kBadFile.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file,
                                    const std::filesystem::path& path);

}  // namespace lemma::weights
