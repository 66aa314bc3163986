// SPDX-License-Identifier: Apache-2.0
#include "eval/steer.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/raise.hpp"
#include "eval/capture.hpp"
#include "runtime/evaluation.hpp"
#include "runtime/steering.hpp"
#include "weights/safetensors/writer.hpp"

namespace lemma::eval {
namespace {

using Sums = std::vector<std::vector<double>>;

/// Adds up the rows of its sites, weighted.
class RowSums final : public backend::Observer {
 public:
  RowSums(const backend::Program& program, std::span<const std::int32_t> sites, SteerRows rows)
      : program_(program), rows_(rows), index_(program.tensors.size(), -1), sums_(sites.size()) {
    for (std::size_t i = 0; i < sites.size(); ++i) {
      index_[std::size_t(sites[i])] = static_cast<std::int32_t>(i);
      sums_[i].resize(program.tensors[std::size_t(sites[i])].width);
    }
  }
  /// The rows that follow are those of a prompt of `tokens` tokens that weighs `weight`.
  void begin(std::size_t tokens, double weight) {
    tokens_ = tokens;
    weight_ = rows_ == SteerRows::kAll ? weight / double(tokens) : weight;
  }
  const Sums& sums() const noexcept { return sums_; }

  bool wants(const backend::Program::Site& site) override {
    for (std::size_t i = 0; i < index_.size(); ++i)
      if (program_.tensors[i].name == site.name) return index_[i] >= 0;
    return false;
  }
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override {
    std::vector<double>& sum = sums_[std::size_t(index_[std::size_t(tensor)])];
    for (std::size_t row = 0; row < rows.size() / site.width; ++row) {
      const bool last = step.segments[0].past + row + 1 == tokens_;
      if (rows_ == SteerRows::kLast && !last) continue;
      for (std::size_t i = 0; i < site.width; ++i)
        sum[i] += weight_ * double(rows[row * site.width + i]);
    }
  }

 private:
  const backend::Program& program_;
  const SteerRows rows_;
  std::vector<std::int32_t> index_;  ///< by tensor, into the sites; -1: none
  Sums sums_;
  std::size_t tokens_ = 0;
  double weight_ = 0;
};

std::size_t longest(const Prompts& prompts) {
  std::size_t tokens = 0;
  for (const auto& prompt : prompts) {
    LEMMA_CHECK(!prompt.empty());
    tokens = std::max(tokens, prompt.size());
  }
  return tokens;
}

}  // namespace

std::vector<std::vector<float>> steering_vectors(ModelRun& run, std::span<const std::int32_t> sites,
                                                 const Prompts& positive, const Prompts& negative,
                                                 SteerRows rows, const ProgressCallback& progress) {
  LEMMA_CHECK(!positive.empty() && !negative.empty());
  const backend::Program& program = run.model().program();
  for (const std::int32_t site : sites) {
    const std::string& name = program.tensors[std::size_t(site)].name;
    if (!runtime::layer_site(name) || runtime::is_discrete(program, site))
      base::raise(ErrorKind::kUsage,
                  "'{}' cannot be steered: expected an attention or feed-forward site of a layer, "
                  "with continuous rows",
                  name);
  }
  RowSums sums(program, sites, rows);
  backend::Observer* const observer = &sums;
  const std::size_t most = std::max(longest(positive), longest(negative));
  run.prepare({&observer, 1}, program.whole_prompts ? std::uint32_t(most) : 0, 1);

  std::size_t done = 0;
  for (const Prompts* set : {&positive, &negative}) {
    const double weight = (set == &positive ? 1.0 : -1.0) / double(set->size());
    for (const std::vector<std::int32_t>& prompt : *set) {
      sums.begin(prompt.size(), weight);
      state::Sequence sequence(run.space().pool());
      runtime::evaluate(run.model(), run.space(), sequence, prompt, {}, {});
      if (progress) progress("prompts", double(++done) / double(positive.size() + negative.size()));
    }
  }
  std::vector<std::vector<float>> vectors;
  for (const std::vector<double>& sum : sums.sums()) {
    vectors.emplace_back(sum.size());
    std::transform(sum.begin(), sum.end(), vectors.back().begin(),
                   [](double x) { return static_cast<float>(x); });
  }
  return vectors;
}

void write_steering(const runtime::LoadedModel& model, std::span<const std::int32_t> sites,
                    std::span<const std::vector<float>> vectors,
                    const std::filesystem::path& path) {
  std::vector<weights::SafetensorsTensor> tensors;
  for (const std::int32_t site : sites) {
    const backend::Program::Site& found = model.program().tensors[std::size_t(site)];
    tensors.push_back({found.name, "F32", {found.width}});
  }
  weights::SafetensorsWriter file(path, std::move(tensors), origin(model));
  for (std::size_t i = 0; i < vectors.size(); ++i)
    file.write(i, 0, std::as_bytes(std::span(vectors[i])));
  file.publish();
}

}  // namespace lemma::eval
