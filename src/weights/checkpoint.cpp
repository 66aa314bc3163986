// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/raise.hpp"
#include "weights/gguf/checkpoint.hpp"

namespace lemma::weights {
namespace {

using base::raise;
namespace fs = std::filesystem;

/// The one checkpoint of a folder: a .gguf file that is whole, or the first part of a split one.
fs::path checkpoint_in(const fs::path& folder) {
  std::vector<std::string> found, later_parts;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (it->path().extension() != ".gguf") continue;
    const auto part = gguf::parse_part_name(name);
    (part && part->number != 1 ? later_parts : found).push_back(name);
  }
  if (error)
    raise(ErrorKind::kIo, "{}: cannot list the folder: {}", folder.string(), error.message());
  std::ranges::sort(found);
  std::ranges::sort(later_parts);
  if (found.size() == 1) return folder / found.front();
  if (found.size() > 1) {
    raise(ErrorKind::kUsage, "{}: expected one checkpoint in the folder, found {} ({}); name one",
          folder.string(), found.size(), fmt::join(found, ", "));
  }
  if (!later_parts.empty()) {
    raise(ErrorKind::kNotFound, "{}: the first part {} is missing", folder.string(),
          gguf::parse_part_name(later_parts.front())->of(1));
  }
  raise(ErrorKind::kNotFound, "{}: no .gguf file in the folder", folder.string());
}

}  // namespace

const TensorInfo& Checkpoint::at(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) return *tensor;
  raise(ErrorKind::kBadFile, "missing tensor '{}'", name);
}

std::unique_ptr<const Checkpoint> open_checkpoint(const fs::path& path) {
  std::error_code error;
  return gguf::open(fs::is_directory(path, error) ? checkpoint_in(path) : path);
}

}  // namespace lemma::weights
