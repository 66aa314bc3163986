// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/folder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/raise.hpp"
#include "weights/safetensors/config.hpp"
#include "weights/safetensors/header.hpp"

namespace lemma::weights::safetensors {
namespace {

using base::raise;
namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";
constexpr std::uint64_t kMaxIndex = 64u << 20;

/// A name of the folder itself: no way leads out of it.
void require_plain(const std::string& file, const std::string& path) {
  const bool plain = file.size() > kExtension.size() && file.ends_with(kExtension) &&
                     file.find_first_of("/\\:") == std::string::npos && file.front() != '.' &&
                     file.find('\0') == std::string::npos;
  if (!plain)
    raise(ErrorKind::kBadFile,
          "{}: expected the name of a safetensors file in the same folder, found '{}'", path, file);
}

std::vector<std::string> safetensors_in(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == kExtension) found.push_back(it->path().filename().string());
  if (error)
    raise(ErrorKind::kIo, "{}: cannot list the folder: {}", folder.string(), error.message());
  std::ranges::sort(found);
  return found;
}

/// The file of a model that is not spread over several.
std::string only_file(const fs::path& folder) {
  const std::vector<std::string> found = safetensors_in(folder);
  // Adapters and older halves may lie beside the model, which has this name where it is one file.
  if (std::ranges::count(found, "model.safetensors") == 1) return "model.safetensors";
  if (found.size() == 1) return found.front();
  if (found.empty())
    raise(ErrorKind::kNotFound, "{}: no .safetensors file in the folder", folder.string());
  raise(ErrorKind::kBadFile, "{}: found {} safetensors files ({}) and no {} that joins them",
        folder.string(), found.size(), fmt::join(found, ", "), kIndexFile);
}

}  // namespace

std::map<std::string, std::string, std::less<>> parse_index(std::string_view text,
                                                            const std::string& path) {
  const Config map = Config::parse(text, path).object("weight_map");
  std::map<std::string, std::string, std::less<>> files;
  for (const std::string& tensor : map.keys()) {
    std::string file = map.string(tensor);
    require_plain(file, path);
    files.emplace(tensor, std::move(file));
  }
  if (files.empty()) raise(ErrorKind::kBadFile, "{}: 'weight_map' lists no tensor", path);
  return files;
}

Folder::Folder(const fs::path& path) {
  std::error_code error;
  const bool whole = fs::is_directory(path, error);
  const bool one_file = !whole && path.extension() == kExtension;
  path_ = whole ? path : path.parent_path().empty() ? fs::path(".") : path.parent_path();
  if (one_file && !fs::exists(path, error))
    raise(ErrorKind::kNotFound, "{}: no such file", path.string());
  if (const auto index = text(kIndexFile, kMaxIndex)) {
    open_listed(*index);
  } else {
    open(one_file ? path.filename().string() : only_file(path_));
  }
}

void Folder::open_listed(const std::string& index) {
  const std::string index_path = (path_ / kIndexFile).string();
  const auto listed = parse_index(index, index_path);
  std::set<std::string> files;
  for (const auto& [tensor, file] : listed) files.insert(file);
  for (const std::string& file : files) {
    std::error_code error;
    if (!fs::exists(path_ / file, error))
      raise(ErrorKind::kNotFound, "{}: the file {} that it lists is missing", index_path, file);
    open(file);
    for (const auto& [tensor, where] : listed)
      if (where == file && !tensors_.contains(tensor))
        raise(ErrorKind::kBadFile, "{}: expected tensor '{}' in {}, where it is not", index_path,
              tensor, file);
  }
}

void Folder::open(const std::string& file) {
  const fs::path path = path_ / file;
  base::MappedFile mapping = base::MappedFile::open(path);
  for (SafetensorsEntry& entry : parse_safetensors(mapping.bytes(), path).entries) {
    if (std::ranges::count(entry.shape, 0u) != 0)
      raise(ErrorKind::kBadFile, "{}: tensor '{}' of shape [{}] has no elements", path.string(),
            entry.name, fmt::join(entry.shape, ", "));
    const auto bytes = mapping.bytes().subspan(entry.begin, entry.end - entry.begin);
    const auto [at, fresh] =
        tensors_.emplace(entry.name, Stored{entry.name, entry.dtype, entry.shape, bytes});
    if (!fresh)
      raise(ErrorKind::kBadFile, "{}: tensor '{}' stands in another file too", path.string(),
            entry.name);
  }
  mappings_.push_back(std::move(mapping));
  files_.push_back(path);
}

std::optional<std::string> Folder::text(std::string_view file, std::uint64_t limit) const {
  const fs::path path = path_ / file;
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const base::MappedFile mapping = base::MappedFile::open(path);
  if (mapping.bytes().size() > limit)
    raise(ErrorKind::kBadFile, "{}: expected at most {} bytes, found {}", path.string(), limit,
          mapping.bytes().size());
  return std::string(reinterpret_cast<const char*>(mapping.bytes().data()), mapping.bytes().size());
}

}  // namespace lemma::weights::safetensors
