// SPDX-License-Identifier: Apache-2.0
// `lemma pull`, `lemma list` and `lemma rm`: models by name in the cache folder. pull is the only
// command that reaches out to the network, and only where it is told to.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/raise.hpp"
#include "cli/commands.hpp"
#include "cli/models/hub.hpp"
#include "cli/models/names.hpp"
#include "cli/models/sha256.hpp"
#include "cli/models/transfer.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::cli {
namespace {

namespace fs = std::filesystem;

/// Fetches one file, unless it is there already.
void fetch(Download order, std::uint64_t before, std::uint64_t total) {
  std::error_code error;
  const std::string name = order.path.filename().string();
  if (fs::is_regular_file(order.path, error)) {
    if (order.sha256 && sha256_of(order.path) != *order.sha256)
      base::raise(ErrorKind::kUsage,
                  "{}: is here already, but its SHA-256 is not {}; 'lemma rm' removes it",
                  order.path.string(), *order.sha256);
    write_err(fmt::format("{}: is here already\n", name));
    return;
  }
  fs::create_directories(order.path.parent_path());
  ProgressBar bar;
  order.progress = [&](std::uint64_t done, std::optional<std::uint64_t> size) {
    const std::uint64_t of = total ? total : size.value_or(0);
    if (of > 0) bar.update(name, double(before + done) / double(of));
  };
  const Downloaded result = download(order);
  bar.clear();
  write_err(fmt::format(
      "{}: {}{}, sha256 {}{}\n", name, format_bytes(result.size),
      result.resumed ? fmt::format(" ({} were here)", format_bytes(result.resumed)) : "",
      result.sha256, order.sha256 ? ", as published" : ""));
}

fs::path pull_from_hub(const RemoteModel& model) {
  const std::vector<HubFile> files = choose_files(model, list_repository(model));
  std::uint64_t total = 0, before = 0;
  for (const HubFile& file : files) total += file.size;
  write_err(fmt::format("{}: {} files, {}\n", model.spelling(), files.size(), format_bytes(total)));
  for (const HubFile& file : files) {
    fetch({.request = request_for(model, file),
           .path = model.place() / file.path,
           .size = file.size,
           .sha256 = file.sha256,
           .progress = {}},
          before, total);
    before += file.size;
  }
  const bool gguf = files.front().path.ends_with(".gguf");
  return gguf ? model.place() / files.front().path : model.place();
}

}  // namespace

int pull(const PullOptions& options) {
  const auto model = parse_remote(options.model);
  if (!model)
    base::raise(ErrorKind::kUsage, "'{}': expected hf:OWNER/NAME[:FILE] or a URL", options.model);
  if (options.sha256 && model->on_hub())
    base::raise(ErrorKind::kUsage, "--sha256 is for a URL; the hub publishes its own");
  fs::path path;
  if (model->on_hub()) {
    path = pull_from_hub(*model);
  } else {
    path = model->place();
    fetch({.request = {model->url, ""},
           .path = path,
           .size = {},
           .sha256 = options.sha256,
           .progress = {}},
          0, 0);
  }
  // Whole, and a checkpoint; whether its architecture runs is another question.
  weights::open_checkpoint(path);
  write_out(path.string() + "\n");
  return kDone;
}

int list(const ListOptions&) {
  for (const CachedModel& model : cached_models())
    write_out(fmt::format("{:>12}  {}\n", format_bytes(model.bytes), model.name));
  return kDone;
}

int remove(const RemoveOptions& options) {
  const auto remote = parse_remote(options.model);
  if (!remote)
    base::raise(ErrorKind::kUsage,
                "'{}': expected a name that 'lemma list' shows; a path is yours to remove",
                options.model);
  const CachedModel model = find_cached(*remote);
  for (const fs::path& file : model.files) fs::remove(file);
  // Folders that hold nothing any more go as well, up to the cache's own.
  const fs::path cache = cache_folder();
  for (fs::path folder = model.files.front().parent_path(); folder != cache;
       folder = folder.parent_path()) {
    std::error_code error;
    if (!fs::is_empty(folder, error) || error || !fs::remove(folder, error)) break;
  }
  write_err(fmt::format("removed {} ({})\n", model.name, format_bytes(model.bytes)));
  return kDone;
}

}  // namespace lemma::cli
