// SPDX-License-Identifier: Apache-2.0
// Model names: what may stand where a model is asked for besides a path. `hf:OWNER/NAME` is a
// repository of the Hugging Face hub, `hf:OWNER/NAME:FILE` one model of it, by its file or a part
// of the file's name, `hf:OWNER/NAME@REVISION` one that is not on its main branch; a URL is a
// single file. They mean files in a cache folder, which `lemma pull` fills; nothing here reaches
// out.
//
//   <cache>/hf/OWNER/NAME/REVISION/...    the repository's own paths
//   <cache>/url/HOST/PATH                 a file by its URL, without its query
//
// The cache folder is $LEMMA_CACHE, else $XDG_CACHE_HOME/lemma, else ~/.cache/lemma.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::cli {

struct RemoteModel {
  std::string owner, name, revision = "main", file;  ///< of the hub; file may be empty
  std::string url;  ///< of a single file; the others are empty then

  bool on_hub() const noexcept { return url.empty(); }
  std::string spelling() const;
  /// Where its files are kept: a folder for the hub, the file itself for a URL.
  std::filesystem::path place() const;
};

/// The model that `text` names; nothing where it is a path. Throws kUsage for a malformed name.
std::optional<RemoteModel> parse_remote(std::string_view text);

/// Throws kUsage where the environment names no place for it.
std::filesystem::path cache_folder();

/// The variable's value; null where it is not set or empty.
const char* environment(const char* name);

/// Whether `path` is a relative one that stays within its folder and holds plain characters only.
bool is_safe_path(std::string_view path) noexcept;

/// A model in the cache: a GGUF file, the first of several, or a folder.
struct CachedModel {
  std::string name;                          ///< as it can be asked for
  std::filesystem::path path;                ///< what opens it
  std::vector<std::filesystem::path> files;  ///< all that belongs to it
  std::uint64_t bytes = 0;
};

/// All whole models of the cache, by name.
std::vector<CachedModel> cached_models();

/// The one model of the cache that `remote` means. Throws kNotFound, with the command that gets it,
/// and kUsage where it may be one of several, which the message lists.
CachedModel find_cached(const RemoteModel& remote);

/// The path to open for what a user gave as a model.
std::filesystem::path resolve_model(const std::filesystem::path& given);

/// The names of the GGUF models among `paths`: single files, and the first of several whose others
/// are there too.
std::vector<std::string> gguf_models(const std::vector<std::string>& paths);
/// All files of the model whose first file is `first`.
std::vector<std::string> parts_of(const std::string& first);
/// Which of `models` is meant by `wanted`: the one of that name, else the only one whose name holds
/// it, whatever the case. Empty: the only one. Throws kUsage listing them where that is not one.
std::string choose_model(const std::vector<std::string>& models, std::string_view wanted,
                         std::string_view of);

}  // namespace lemma::cli
