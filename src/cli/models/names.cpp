// SPDX-License-Identifier: Apache-2.0
#include "cli/models/names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>

#include "base/raise.hpp"
#include "weights/gguf/checkpoint.hpp"

namespace lemma::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHub = "hf:", kGguf = ".gguf", kPartial = ".partial";

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool is_word(std::string_view text) {
  return is_safe_path(text) && text.find('/') == std::string_view::npos;
}

RemoteModel parse_hub(std::string_view text) {
  const auto refuse = [&] {
    base::raise(ErrorKind::kUsage,
                "'{}{}': expected hf:OWNER/NAME, hf:OWNER/NAME:FILE or hf:OWNER/NAME@REVISION:FILE",
                kHub, text);
  };
  RemoteModel result;
  std::string_view repository = text;
  if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    repository = text.substr(0, colon);
    result.file = text.substr(colon + 1);
    if (!is_safe_path(result.file)) refuse();
  }
  if (const std::size_t at = repository.find('@'); at != std::string_view::npos) {
    result.revision = repository.substr(at + 1);
    repository = repository.substr(0, at);
  }
  const std::size_t slash = repository.find('/');
  if (slash == std::string_view::npos) refuse();
  result.owner = repository.substr(0, slash);
  result.name = repository.substr(slash + 1);
  if (!is_word(result.owner) || !is_word(result.name) || !is_word(result.revision)) refuse();
  return result;
}

/// All plain files below `folder`, as paths relative to it; none where there is no such folder.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error))
    if (entry->is_regular_file(error))
      files.push_back(entry->path().lexically_relative(folder).generic_string());
  std::sort(files.begin(), files.end());
  return files;
}

bool is_weights_file(std::string_view path) {
  return path.ends_with(".safetensors");
}

/// The models that lie in a folder of the cache, under `name`.
void collect(const fs::path& folder, const std::string& name, std::vector<CachedModel>& models) {
  const std::vector<std::string> files = files_below(folder);
  const auto add = [&](std::string model_name, const fs::path& path,
                       const std::vector<std::string>& own) {
    CachedModel model{std::move(model_name), path, {}, 0};
    for (const std::string& file : own) {
      std::error_code error;
      model.files.push_back(folder / file);
      model.bytes += fs::file_size(folder / file, error);
    }
    models.push_back(std::move(model));
  };
  for (const std::string& first : gguf_models(files))
    add(name + ":" + first, folder / first, parts_of(first));
  const bool whole = std::none_of(files.begin(), files.end(),
                                  [](const std::string& file) { return file.ends_with(kPartial); });
  if (whole && std::any_of(files.begin(), files.end(), is_weights_file) &&
      std::find(files.begin(), files.end(), "config.json") != files.end()) {
    std::vector<std::string> own;
    for (const std::string& file : files)
      if (!file.ends_with(kGguf)) own.push_back(file);
    add(name, folder, own);
  }
}

}  // namespace

std::string RemoteModel::spelling() const {
  if (!on_hub()) return url;
  return fmt::format("{}{}/{}{}{}{}{}", kHub, owner, name, revision == "main" ? "" : "@",
                     revision == "main" ? "" : revision, file.empty() ? "" : ":", file);
}

fs::path RemoteModel::place() const {
  if (on_hub()) return cache_folder() / "hf" / owner / name / revision;
  std::string_view rest = url;
  rest.remove_prefix(rest.find("//") + 2);
  rest = rest.substr(0, rest.find_first_of("?#"));
  return cache_folder() / "url" / std::string(rest);
}

std::optional<RemoteModel> parse_remote(std::string_view text) {
  if (text.starts_with(kHub)) return parse_hub(text.substr(kHub.size()));
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!text.starts_with(scheme)) continue;
    const std::string_view rest = text.substr(scheme.size());
    const std::string_view path = rest.substr(0, rest.find_first_of("?#"));
    const std::size_t slash = path.find('/');
    if (slash == std::string_view::npos || !is_safe_path(path.substr(slash + 1)) ||
        path.substr(0, slash).find('@') != std::string_view::npos)
      base::raise(ErrorKind::kUsage, "'{}': expected a URL of a file, without a user's name", text);
    RemoteModel result;
    result.url = text;
    return result;
  }
  return {};
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

fs::path cache_folder() {
  if (const char* own = environment("LEMMA_CACHE")) return own;
  if (const char* cache = environment("XDG_CACHE_HOME")) return fs::path(cache) / "lemma";
  if (const char* home = environment("HOME")) return fs::path(home) / ".cache" / "lemma";
  base::raise(ErrorKind::kUsage,
              "there is no place for models: none of LEMMA_CACHE, XDG_CACHE_HOME and HOME is set");
}

bool is_safe_path(std::string_view path) noexcept {
  if (path.empty() || path.size() > 1024) return false;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || c == '\\' || c == ':') return false;
  }
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == "..") return false;
    path.remove_prefix(std::min(part.size() + 1, path.size()));
    if (path.empty() && part.data()[part.size()] == '/') return false;  // ends with a slash
  }
  return true;
}

std::vector<std::string> parts_of(const std::string& first) {
  const fs::path path(first);
  const auto name = weights::gguf::parse_part_name(path.filename().string());
  if (!name) return {first};
  std::vector<std::string> parts;
  for (std::uint32_t i = 1; i <= name->count; ++i)
    parts.push_back((path.parent_path() / name->of(i)).generic_string());
  return parts;
}

std::vector<std::string> gguf_models(const std::vector<std::string>& paths) {
  const std::set<std::string> all(paths.begin(), paths.end());
  std::vector<std::string> models;
  for (const std::string& path : paths) {
    if (!lower(path).ends_with(kGguf)) continue;
    const auto name = weights::gguf::parse_part_name(fs::path(path).filename().string());
    if (name && name->number != 1) continue;
    if (name && name->count > paths.size()) continue;
    const std::vector<std::string> parts = parts_of(path);
    if (std::all_of(parts.begin(), parts.end(), [&](const auto& p) { return all.contains(p); }))
      models.push_back(path);
  }
  return models;
}

std::string choose_model(const std::vector<std::string>& models, std::string_view wanted,
                         std::string_view of) {
  if (std::find(models.begin(), models.end(), wanted) != models.end()) return std::string(wanted);
  std::vector<std::string> found;
  for (const std::string& model : models)
    if (lower(model).find(lower(wanted)) != std::string::npos) found.push_back(model);
  if (found.size() == 1) return found.front();
  if (wanted.empty())
    base::raise(ErrorKind::kUsage, "{} has several models; name one with :FILE, of {}", of,
                fmt::join(models, ", "));
  base::raise(ErrorKind::kUsage, "{} has {} models like '{}'; it has {}", of,
              found.empty() ? "no" : "several", wanted, fmt::join(models, ", "));
}

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> models;
  const fs::path hub = cache_folder() / "hf", urls = cache_folder() / "url";
  std::set<std::string> repositories;
  for (const std::string& file : files_below(hub)) {
    std::size_t end = 0;
    for (int i = 0; i < 3 && end != std::string::npos; ++i) end = file.find('/', end + (i > 0));
    if (end != std::string::npos) repositories.insert(file.substr(0, end));
  }
  for (const std::string& place : repositories) {
    const std::size_t revision = place.rfind('/');
    const std::string suffix = place.substr(revision + 1);
    collect(hub / place,
            fmt::format("{}{}{}{}", kHub, place.substr(0, revision), suffix == "main" ? "" : "@",
                        suffix == "main" ? "" : suffix),
            models);
  }
  for (const std::string& file : files_below(urls)) {
    if (file.ends_with(kPartial) || file.ends_with(".etag")) continue;
    std::error_code error;
    models.push_back(
        {"https://" + file, urls / file, {urls / file}, fs::file_size(urls / file, error)});
  }
  return models;
}

CachedModel find_cached(const RemoteModel& remote) {
  const auto missing = [&] {
    base::raise(ErrorKind::kNotFound, "{} is not on this machine; 'lemma pull {}' gets it",
                remote.spelling(), remote.spelling());
  };
  if (!remote.on_hub()) {
    std::error_code error;
    const fs::path path = remote.place();
    if (!fs::is_regular_file(path, error)) missing();
    return {remote.url, path, {path}, fs::file_size(path, error)};
  }
  RemoteModel repository = remote;
  repository.file.clear();
  std::vector<CachedModel> models;
  collect(remote.place(), repository.spelling(), models);
  std::map<std::string, const CachedModel*> by_file;
  std::vector<std::string> files;
  for (const CachedModel& model : models) {
    const std::string file = model.name.size() > repository.spelling().size()
                                 ? model.name.substr(repository.spelling().size() + 1)
                                 : "";
    by_file[file] = &model;
    files.push_back(file);
  }
  if (models.empty()) missing();
  if (models.size() == 1 && remote.file.empty()) return models.front();
  if (!remote.file.empty() && std::none_of(files.begin(), files.end(), [&](const auto& file) {
        return lower(file).find(lower(remote.file)) != std::string::npos;
      }))
    missing();
  return *by_file.at(choose_model(files, remote.file, repository.spelling()));
}

fs::path resolve_model(const fs::path& given) {
  const auto remote = parse_remote(given.string());
  return remote ? find_cached(*remote).path : given;
}

}  // namespace lemma::cli
