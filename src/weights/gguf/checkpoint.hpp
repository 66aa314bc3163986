// SPDX-License-Identifier: Apache-2.0
// Opens GGUF files as a Checkpoint: one file, or the parts of a split one, which are found by name
// beside the first. Metadata is the first part's; every part's tensors join in order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "weights/checkpoint.hpp"

namespace lemma::weights::gguf {

/// A file name of the form STEM-00002-of-00003.gguf.
struct PartName {
  std::string stem;
  std::uint32_t number = 0;  ///< from 1
  std::uint32_t count = 0;

  std::string of(std::uint32_t part) const;  ///< the name of another part
};

/// The parts of `file_name`, or nothing where it does not have that form.
std::optional<PartName> parse_part_name(const std::string& file_name);

/// Opens the file at `path` and, where it is the first of several parts, its siblings. Throws
/// kUsage for another part than the first, kNotFound naming a missing sibling.
std::unique_ptr<const Checkpoint> open(const std::filesystem::path& path);

}  // namespace lemma::weights::gguf
