// SPDX-License-Identifier: Apache-2.0
#include "eval/capture.hpp"

#include <algorithm>
#include <memory>
#include <system_error>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "base/wildcard.hpp"
#include "runtime/evaluation.hpp"
#include "weights/safetensors/writer.hpp"

namespace lemma::eval {
namespace {

/// Writes the rows of some sites where they belong in one or several files.
class SiteWriter final : public backend::Observer {
 public:
  SiteWriter(const runtime::LoadedModel& model, std::span<const std::int32_t> tokens)
      : model_(model), tokens_(tokens), places_(model.program().tensors.size()) {}

  /// One more file, with the rows of `sites`.
  void add(const std::filesystem::path& path, std::span<const std::int32_t> sites) {
    std::vector<weights::SafetensorsTensor> tensors;
    for (std::size_t i = 0; i < sites.size(); ++i) {
      const backend::Program::Site& site = model_.program().tensors[std::size_t(sites[i])];
      tensors.push_back({site.name, "F32", {tokens_.size(), site.width}});
      places_[std::size_t(sites[i])] = {files_.size(), i, true};
    }
    tensors.push_back({"tokens", "I32", {tokens_.size()}});
    files_.push_back(
        std::make_unique<weights::SafetensorsWriter>(path, std::move(tensors), origin(model_)));
    files_.back()->write(sites.size(), 0, std::as_bytes(tokens_));
  }
  void publish() {
    for (const auto& file : files_) file->publish();
  }

  bool wants(const backend::Program::Site& site) override {
    const auto& tensors = model_.program().tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].name == site.name) return places_[i].wanted;
    return false;
  }
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override {
    const Place& place = places_[std::size_t(tensor)];
    const std::uint64_t row_bytes = std::uint64_t{site.width} * sizeof(float);
    files_[place.file]->write(place.index, step.segments[0].past * row_bytes, std::as_bytes(rows));
  }

 private:
  struct Place {
    std::size_t file = 0, index = 0;
    bool wanted = false;
  };
  const runtime::LoadedModel& model_;
  const std::span<const std::int32_t> tokens_;
  std::vector<Place> places_;  ///< by tensor
  std::vector<std::unique_ptr<weights::SafetensorsWriter>> files_;
};

}  // namespace

std::vector<std::int32_t> matching_sites(const backend::Program& program,
                                         std::span<const std::string> patterns) {
  std::vector<bool> wanted(program.tensors.size());
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!base::matches_wildcard(pattern, program.tensors[i].name)) continue;
      wanted[i] = any = true;
    }
    if (!any)
      base::raise(ErrorKind::kUsage,
                  "no site of this model matches '{}' (lemma capture MODEL --list shows them all)",
                  pattern);
  }
  std::vector<std::int32_t> sites;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) sites.push_back(static_cast<std::int32_t>(i));
  return sites;
}

std::vector<std::pair<std::string, std::string>> origin(const runtime::LoadedModel& model) {
  const ModelInfo info = model.info();
  return {{"architecture", base::repair_utf8(info.architecture)},
          {"model", base::repair_utf8(info.name)},
          {"backend", base::repair_utf8(info.backend)}};
}

void capture(ModelRun& run, std::span<const std::int32_t> tokens,
             std::span<const std::int32_t> sites, const std::filesystem::path& path, bool folder) {
  SiteWriter writer(run.model(), tokens);
  if (folder) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) base::raise(ErrorKind::kIo, "{}: {}", path.string(), error.message());
    for (const std::int32_t& site : sites)
      writer.add(path / (run.model().program().tensors[std::size_t(site)].name + ".safetensors"),
                 {&site, 1});
  } else {
    writer.add(path, sites);
  }
  backend::Observer* const observer = &writer;
  const bool whole = run.model().program().whole_prompts;
  run.prepare({&observer, 1}, whole ? std::uint32_t(tokens.size()) : 0, 1);
  state::Sequence sequence(run.space().pool());
  runtime::evaluate(run.model(), run.space(), sequence, tokens, {}, {});
  writer.publish();
}

}  // namespace lemma::eval
