// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/raise.hpp"
#include "weights/gguf/checkpoint.hpp"
#include "weights/safetensors/checkpoint.hpp"

namespace lemma::weights {
namespace {

using base::raise;
namespace fs = std::filesystem;

/// The names of a folder's .gguf files, in order.
std::vector<std::string> gguf_files_in(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".gguf") found.push_back(it->path().filename().string());
  if (error)
    raise(ErrorKind::kIo, "{}: cannot list the folder: {}", folder.string(), error.message());
  std::ranges::sort(found);
  return found;
}

/// The one checkpoint of a folder: a .gguf file that is whole, or the first part of a split one.
fs::path checkpoint_in(const fs::path& folder) {
  std::vector<std::string> found, later_parts;
  for (const std::string& name : gguf_files_in(folder)) {
    const auto part = gguf::parse_part_name(name);
    (part && part->number != 1 ? later_parts : found).push_back(name);
  }
  if (found.size() == 1) return folder / found.front();
  if (found.size() > 1) {
    raise(ErrorKind::kUsage, "{}: expected one checkpoint in the folder, found {} ({}); name one",
          folder.string(), found.size(), fmt::join(found, ", "));
  }
  if (!later_parts.empty()) {
    raise(ErrorKind::kNotFound, "{}: the first part {} is missing", folder.string(),
          gguf::parse_part_name(later_parts.front())->of(1));
  }
  raise(ErrorKind::kNotFound, "{}: neither a .gguf file nor a config.json in the folder",
        folder.string());
}

}  // namespace

const TensorInfo& Checkpoint::at(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) return *tensor;
  raise(ErrorKind::kBadFile, "missing tensor '{}'", name);
}

std::unique_ptr<const Checkpoint> open_checkpoint(const fs::path& path) {
  std::error_code error;
  if (safetensors::is_huggingface(path)) {
    if (fs::is_directory(path, error) && !gguf_files_in(path).empty())
      raise(ErrorKind::kUsage,
            "{}: the folder holds a safetensors model and a GGUF file; name a file of one",
            path.string());
    return safetensors::open(path);
  }
  return gguf::open(fs::is_directory(path, error) ? checkpoint_in(path) : path);
}

}  // namespace lemma::weights
