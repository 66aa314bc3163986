// SPDX-License-Identifier: Apache-2.0
#include "cli/models/hub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/raise.hpp"

namespace lemma::cli {
namespace {

constexpr std::size_t kLongestList = std::size_t{64} << 20;  ///< bytes of an answer

std::string token() {
  const char* const own = environment("HF_TOKEN");
  return own ? own : "";
}

std::string endpoint() {
  const char* const own = environment("HF_ENDPOINT");
  std::string url = own ? own : "https://huggingface.co";
  while (url.ends_with('/')) url.pop_back();
  return url;
}

/// A path as part of a URL.
std::string escaped(std::string_view path) {
  constexpr std::string_view kPlain = "/-_.~";
  std::string result;
  for (const char c : path) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       kPlain.find(c) != std::string_view::npos;
    if (plain)
      result += c;
    else
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

HubFile parse_file(const nlohmann::json& entry, const std::string& url) {
  HubFile file;
  file.path = entry.at("rfilename").get<std::string>();
  if (!is_safe_path(file.path))
    base::raise(ErrorKind::kBadFile, "{}: '{}' is no path of a file in a repository", url,
                file.path);
  file.size = entry.at("size").get<std::uint64_t>();
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
    const auto sum = lfs->at("sha256").get<std::string>();
    if (!is_sha256(sum)) base::raise(ErrorKind::kBadFile, "{}: '{}' is no SHA-256", url, sum);
    file.sha256 = sum;
    file.size = lfs->at("size").get<std::uint64_t>();
  }
  return file;
}

/// What a safetensors model consists of, beside its weights.
bool belongs_to_safetensors(std::string_view path) {
  if (path.find('/') != std::string_view::npos) return false;
  return path.ends_with(".json") || path.ends_with(".jinja") ||
         (path.ends_with(".safetensors") && path.starts_with("model"));
}

}  // namespace

std::vector<HubFile> list_repository(const RemoteModel& model) {
  const std::string url =
      fmt::format("{}/api/models/{}/{}/revision/{}?blobs=true", endpoint(), escaped(model.owner),
                  escaped(model.name), escaped(model.revision));
  const std::string text = fetch_text({url, token()}, kLongestList);
  std::vector<HubFile> files;
  try {
    const auto json = nlohmann::json::parse(text);
    for (const auto& entry : json.at("siblings")) files.push_back(parse_file(entry, url));
  } catch (const nlohmann::json::exception& error) {
    base::raise(ErrorKind::kBadFile, "{}: expected a list of files, found something else: {}", url,
                error.what());
  }
  return files;
}

std::vector<HubFile> choose_files(const RemoteModel& model, const std::vector<HubFile>& files) {
  std::vector<std::string> paths;
  for (const HubFile& file : files) paths.push_back(file.path);
  RemoteModel repository = model;
  repository.file.clear();
  std::vector<std::string> chosen;
  if (const std::vector<std::string> ggufs = gguf_models(paths); !ggufs.empty()) {
    chosen = parts_of(choose_model(ggufs, model.file, repository.spelling()));
  } else if (!model.file.empty()) {
    base::raise(ErrorKind::kNotFound, "{} has no GGUF file", repository.spelling());
  } else {
    std::copy_if(paths.begin(), paths.end(), std::back_inserter(chosen), belongs_to_safetensors);
    if (std::none_of(chosen.begin(), chosen.end(),
                     [](const std::string& path) { return path.ends_with(".safetensors"); }))
      base::raise(ErrorKind::kNotFound, "{} has neither GGUF nor safetensors files",
                  repository.spelling());
  }
  std::vector<HubFile> result;
  for (const HubFile& file : files)
    if (std::find(chosen.begin(), chosen.end(), file.path) != chosen.end()) result.push_back(file);
  return result;
}

Request request_for(const RemoteModel& model, const HubFile& file) {
  return {fmt::format("{}/{}/{}/resolve/{}/{}", endpoint(), escaped(model.owner),
                      escaped(model.name), escaped(model.revision), escaped(file.path)),
          token()};
}

}  // namespace lemma::cli
