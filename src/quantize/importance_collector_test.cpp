// SPDX-License-Identifier: Apache-2.0
#include "quantize/importance_collector.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "runtime/evaluation.hpp"
#include "test_data.hpp"
#include "weights/view.hpp"

namespace lemma::quantize {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<runtime::LoadedModel> open(const std::string& golden, BackendKind backend,
                                           int threads = 1) {
  return runtime::LoadedModel::open(test::source_dir() / "tests/goldens" / golden / "model.gguf",
                                    {.backend = backend, .threads = threads});
}

/// Two windows of 21 and 9 tokens.
void windows(const std::function<void(std::span<const std::int32_t>)>& body) {
  std::vector<std::int32_t> ids(30);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = std::int32_t(i * i * 7 % 60 + 1);
  body(std::span(ids).first(21));
  body(std::span(ids).subspan(21));
}

Collected collect(const std::string& golden, BackendKind backend, int threads = 1,
                  std::uint32_t rows = 256) {
  const auto model = open(golden, backend, threads);
  return collect_importance(*model, windows, {.window = 24, .rows = rows});
}

/// Every site of the model's own program, the windows one after the other.
class AllSites final : public backend::Observer {
 public:
  std::map<std::string, std::vector<float>, std::less<>> rows;
  bool wants(const backend::Program::Site&) override { return true; }
  void observe(std::int32_t, const backend::Program::Site& site, const backend::Step&,
               std::span<float> seen) override {
    auto& all = rows[site.name];
    all.insert(all.end(), seen.begin(), seen.end());
  }
};

AllSites sites_of(runtime::LoadedModel& model) {
  AllSites sites;
  backend::Observer* const observer = &sites;
  runtime::StateSpace space(model,
                            {.format = algorithm::RowFormat::kF32, .observers = {&observer, 1}});
  windows([&](std::span<const std::int32_t> ids) {
    state::Sequence sequence(space.pool());
    runtime::evaluate(model, space, sequence, ids, {}, {});
  });
  return sites;
}

std::vector<float> numbers(const runtime::LoadedModel& model, const std::string& name) {
  const weights::TensorInfo& tensor = model.checkpoint().at(name);
  return weights::to_f32(
      weights::bind(model.checkpoint(), {name, {}}, tensor.rows(), tensor.row_elements()));
}

std::vector<double> squares(std::span<const float> rows, std::size_t cols) {
  std::vector<double> sums(cols);
  for (std::size_t i = 0; i < rows.size(); ++i) sums[i % cols] += double(rows[i]) * rows[i];
  return sums;
}

void expect_sums(const Importance::Entry& entry, std::size_t matrix,
                 const std::vector<double>& sums, double rows, const std::string& what) {
  ASSERT_EQ(entry.cols, sums.size()) << what;
  EXPECT_EQ(entry.counts[matrix], rows) << what;
  for (std::size_t c = 0; c < sums.size(); ++c)
    EXPECT_NEAR(entry.sums[matrix * entry.cols + c], sums[c], 2e-6 * sums[c] + 1e-9)
        << what << " " << c;
}

TEST(ImportanceCollector, SumsTheSquaresOfWhatAMatrixReads) {
  const auto model = open("qwen3moe", BackendKind::kReference);
  const AllSites sites = sites_of(*model);
  const Importance importance = collect("qwen3moe", BackendKind::kReference).importance;
  const std::size_t width = model->plan().width;
  const auto norm = squares(sites.rows.at("layers.1.attention.norm"), width);
  for (const char* name : {"attn_q", "attn_k", "attn_v"})
    expect_sums(importance.entries.at("blk.1." + std::string(name) + ".weight"), 0, norm, 30, name);
  const auto& heads = sites.rows.at("layers.0.attention.heads");
  expect_sums(importance.entries.at("blk.0.attn_output.weight"), 0,
              squares(heads, heads.size() / 30), 30, "output");
  expect_sums(importance.entries.at("output.weight"), 0,
              squares(sites.rows.at("final_norm"), width), 30, "head");
  EXPECT_EQ(importance.parts, 2u);
}

TEST(ImportanceCollector, GivesEachExpertTheRowsThatChoseIt) {
  const auto model = open("qwen3moe", BackendKind::kReference);
  const AllSites sites = sites_of(*model);
  const Importance importance = collect("qwen3moe", BackendKind::kReference).importance;
  const auto& moe = std::get<model::Moe>(model->plan().layers[1].sites[1].mixer);
  const std::size_t width = moe.expert.width, hidden = moe.expert.hidden;
  const std::size_t chosen = moe.routing.chosen, experts = moe.routing.experts;
  const std::vector<float> gate = numbers(*model, "blk.1.ffn_gate_exps.weight");
  const std::vector<float> up = numbers(*model, "blk.1.ffn_up_exps.weight");
  const auto& in = sites.rows.at("layers.1.ffn.norm");
  const auto& ids = sites.rows.at("layers.1.ffn.experts_chosen");
  for (std::size_t e = 0; e < experts; ++e) {
    std::vector<double> read(width), made(hidden);
    double rows = 0;
    for (std::size_t at = 0; at < ids.size(); ++at) {
      if (ids[at] != float(e)) continue;
      ++rows;
      const std::span x = std::span(in).subspan(at / chosen * width, width);
      for (std::size_t c = 0; c < width; ++c) read[c] += double(x[c]) * x[c];
      for (std::size_t f = 0; f < hidden; ++f) {
        double g = 0, u = 0;
        for (std::size_t c = 0; c < width; ++c) {
          g += double(gate[(e * hidden + f) * width + c]) * x[c];
          u += double(up[(e * hidden + f) * width + c]) * x[c];
        }
        made[f] += std::pow(g / (1 + std::exp(-g)) * u, 2);
      }
    }
    const std::string what = "expert " + std::to_string(e);
    expect_sums(importance.entries.at("blk.1.ffn_gate_exps.weight"), e, read, rows, what);
    expect_sums(importance.entries.at("blk.1.ffn_up_exps.weight"), e, read, rows, what);
    const Importance::Entry& down = importance.entries.at("blk.1.ffn_down_exps.weight");
    EXPECT_EQ(down.counts[e], rows);
    // Computed anew in double: agreement to f32's rounding of a hidden row, not of a sum.
    for (std::size_t f = 0; f < hidden; ++f)
      EXPECT_NEAR(down.sums[e * hidden + f], made[f], 1e-4 * made[f] + 1e-9) << what << " " << f;
  }
}

TEST(ImportanceCollector, NamesExpertsThatNoRowReached) {
  const auto model = open("qwen3moe", BackendKind::kCpu);
  const std::vector<std::int32_t> one = {5, 5};
  const Collected collected =
      collect_importance(*model, [&](const auto& body) { body(std::span(one)); }, {.window = 8});
  ASSERT_FALSE(collected.importance.unseen().empty());
  for (const Importance::Unseen& unseen : collected.importance.unseen()) {
    const Importance::Entry& entry = collected.importance.entries.at(unseen.tensor);
    EXPECT_EQ(unseen.of, entry.matrices());
    EXPECT_EQ(unseen.experts.size(), entry.unseen());
    for (const std::size_t expert : unseen.experts) EXPECT_EQ(entry.counts[expert], 0.f);
    EXPECT_EQ(
        std::accumulate(entry.counts.begin(), entry.counts.end(), 0.f),
        float(2 * std::get<model::Moe>(model->plan().layers[0].sites[1].mixer).routing.chosen));
  }
}

TEST(ImportanceCollector, NamesMatricesWithoutInputs) {
  EXPECT_THAT(collect("qwen3moe", BackendKind::kCpu).unknown,
              testing::ElementsAre("token_embd.weight"));
  // Latent attention's way up stands inside of the operation.
  EXPECT_THAT(collect("deepseek2", BackendKind::kCpu).unknown,
              testing::IsSupersetOf({"blk.0.attn_v_b.weight", "token_embd.weight"}));
}

TEST(ImportanceCollector, StepsAndThreadsDoNotShow) {
  for (const char* golden : {"qwen3moe", "gpt-oss", "deepseek4", "qwen3next"}) {
    const Importance one = collect(golden, BackendKind::kCpu).importance;
    const Importance other = collect(golden, BackendKind::kCpu, 3, 4).importance;
    ASSERT_EQ(one.entries.size(), other.entries.size());
    EXPECT_GT(one.entries.size(), 8u) << golden;
    for (const auto& [name, entry] : one.entries) {
      EXPECT_EQ(entry.sums, other.entries.at(name).sums) << golden << " " << name;
      EXPECT_EQ(entry.counts, other.entries.at(name).counts) << golden << " " << name;
    }
  }
}

TEST(ImportanceCollector, BackendsSeeTheSame) {
  const Importance one = collect("gpt-oss", BackendKind::kReference).importance;
  const Importance other = collect("gpt-oss", BackendKind::kCpu).importance;
  for (const auto& [name, entry] : one.entries) {
    const Importance::Entry& seen = other.entries.at(name);
    EXPECT_EQ(entry.counts, seen.counts) << name;
    const double total = std::accumulate(entry.sums.begin(), entry.sums.end(), 0.0);
    for (std::size_t i = 0; i < entry.sums.size(); ++i)
      EXPECT_NEAR(entry.sums[i], seen.sums[i], 0.02 * entry.sums[i] + 1e-4 * total) << name;
  }
}

}  // namespace
}  // namespace lemma::quantize
