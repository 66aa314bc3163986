// SPDX-License-Identifier: Apache-2.0
// `lemma show --verify` and `lemma show --diff`: what is in a model's files, number by number.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/topology.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "eval/file_check.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of(weights::Format format) {
  return std::string(weights::traits(format).name);
}

std::string hex(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

int report(const std::vector<eval::TensorCheck>& checks, bool json) {
  std::size_t bad = 0;
  Json list = Json::array();
  std::string text;
  for (const eval::TensorCheck& check : checks) {
    bad += check.bad_rows > 0;
    if (json) {
      list.push_back({{"name", check.name},
                      {"format", name_of(check.format)},
                      {"xxh3", hex(check.checksum)},
                      {"rms", check.rms},
                      {"largest", check.largest},
                      {"bad_rows", check.bad_rows}});
      continue;
    }
    text += fmt::format("{} {:<8} rms {:<11.5g} largest {:<11.5g} {}{}\n", hex(check.checksum),
                        name_of(check.format), check.rms, check.largest, check.name,
                        check.bad_rows ? fmt::format("  NOT FINITE in {} rows, the first is {}",
                                                     check.bad_rows, *check.bad_row)
                                       : "");
  }
  write_out(json ? Json{{"tensors", list}, {"bad_tensors", bad}}.dump(2) + "\n" : text);
  write_err(
      bad ? fmt::format("{} of {} tensors hold numbers that are not finite\n", bad, checks.size())
          : fmt::format("all numbers of {} tensors are finite\n", checks.size()));
  return bad ? kFailed : kDone;
}

int report(const eval::CheckpointDifference& difference, bool json) {
  if (json) {
    Json list = Json::array();
    for (const eval::TensorDifference& tensor : difference.tensors) {
      Json entry{{"name", tensor.name}};
      if (!tensor.what.empty())
        entry["what"] = tensor.what;
      else
        entry.update({{"format", name_of(tensor.format)},
                      {"other_format", name_of(tensor.other_format)},
                      {"relative_rms", tensor.relative_rms},
                      {"largest", tensor.largest}});
      list.push_back(entry);
    }
    const Json all{{"keys", difference.keys}, {"tensors", list}, {"equal", difference.equal}};
    write_out(all.dump(2) + "\n");
  } else {
    std::string text;
    for (const std::string& key : difference.keys) text += fmt::format("key     {}\n", key);
    for (const eval::TensorDifference& tensor : difference.tensors)
      text +=
          tensor.what.empty()
              ? fmt::format("tensor  {:<40} {:<8} {:<8} relative RMS {:<11.5g} largest {:.5g}\n",
                            tensor.name, name_of(tensor.format), name_of(tensor.other_format),
                            tensor.relative_rms, tensor.largest)
              : fmt::format("tensor  {:<40} {}\n", tensor.name, tensor.what);
    write_out(text);
    write_err(fmt::format("{} keys and {} tensors differ, {} tensors are equal\n",
                          difference.keys.size(), difference.tensors.size(), difference.equal));
  }
  return difference.keys.empty() && difference.tensors.empty() ? kDone : kFailed;
}

}  // namespace

int show_files(const ShowFilesOptions& options) {
  ProgressBar progress;
  const int threads = options.threads ? options.threads : base::allowed_cpu_count();
  const auto model =
      runtime::with_path(options.model, [&] { return weights::open_checkpoint(options.model); });
  if (!options.other) {
    const auto checks = eval::verify(*model, threads, progress.callback());
    progress.clear();
    return report(checks, options.json);
  }
  const auto other =
      runtime::with_path(*options.other, [&] { return weights::open_checkpoint(*options.other); });
  const auto difference = eval::difference(*model, *other, threads, progress.callback());
  progress.clear();
  return report(difference, options.json);
}

}  // namespace lemma::cli
