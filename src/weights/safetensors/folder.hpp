// SPDX-License-Identifier: Apache-2.0
// Folder: the files of a Hugging Face checkpoint, before anything is known of the model:
// safetensors files, one or many with an index, mapped and checked, and the small texts beside
// them. Only files of the folder itself are ever opened, whatever an index says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.hpp"

namespace lemma::weights::safetensors {

inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

/// A tensor as its file has it; `dtype` is the file's word.
struct Stored {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;  ///< no dimension is 0
  std::span<const std::byte> bytes;
};

class Folder {
 public:
  /// Opens `path`, the folder or one of its safetensors or JSON files. Throws kNotFound naming a
  /// missing file, kBadFile for a damaged one, an index that names a file elsewhere or a tensor
  /// that is not where it says, and a tensor that stands in two files.
  explicit Folder(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// The safetensors files, in order of their names.
  const std::vector<std::filesystem::path>& files() const noexcept { return files_; }
  const std::map<std::string, Stored, std::less<>>& tensors() const noexcept { return tensors_; }
  /// The text of a file of the folder, or nothing where there is none. Throws kBadFile where it
  /// has more than `limit` bytes.
  std::optional<std::string> text(std::string_view file, std::uint64_t limit) const;

 private:
  void open_listed(const std::string& index);
  void open(const std::string& file);

  std::filesystem::path path_;
  std::vector<base::MappedFile> mappings_;  ///< own the bytes that tensors_ points to
  std::vector<std::filesystem::path> files_;
  std::map<std::string, Stored, std::less<>> tensors_;
};

/// The files that the index `text` lists, by tensor. Throws kBadFile; `path` stands in messages.
std::map<std::string, std::string, std::less<>> parse_index(std::string_view text,
                                                            const std::string& path);

}  // namespace lemma::weights::safetensors
