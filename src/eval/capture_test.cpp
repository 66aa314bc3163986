// SPDX-License-Identifier: Apache-2.0
#include "eval/capture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/mapped_file.hpp"
#include "eval/site_rows.hpp"
#include "eval/steer.hpp"
#include "runtime/evaluation.hpp"
#include "test_data.hpp"
#include "weights/safetensors/header.hpp"

namespace lemma::eval {
namespace {

constexpr const char* kGolden = "goldens/llama-gqa/model.gguf";
const std::vector<std::int32_t> kTokens = {1, 403, 407, 261, 378, 432, 383};

std::filesystem::path temporary(const char* name) {
  return std::filesystem::temp_directory_path() /
         ("lemma-" + std::to_string(::getpid()) + "-" + name);
}

TEST(MatchingSites, RefusesAPatternWithoutASite) {
  backend::Program program;
  program.tensor("embedding", 4);
  program.tensor("layers.0.ffn.output", 4);
  const std::vector<std::string> both = {"*.output", "embedding"}, one = {"embedding", "nothing"};
  EXPECT_EQ(matching_sites(program, both), (std::vector<std::int32_t>{0, 1}));
  EXPECT_THROW(matching_sites(program, one), Error);
}

/// All rows of all sites, from one prefill.
SiteRows all_rows(ModelRun& run, std::span<const std::int32_t> tokens) {
  SiteRows rows(run.model().program());
  for (std::size_t i = 0; i < run.model().program().tensors.size(); ++i)
    rows.want({static_cast<std::int32_t>(i), 1});
  backend::Observer* const observer = &rows;
  run.prepare({&observer, 1}, 64, 1);
  state::Sequence sequence(run.space().pool());
  runtime::evaluate(run.model(), run.space(), sequence, tokens, {}, {});
  return rows;
}

TEST(Capture, WritesTheRowsOfItsSitesAndTheTokens) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  ModelRun run({.path = path, .threads = 1});
  const SiteRows rows = all_rows(run, kTokens);
  const std::vector<std::string> patterns = {"layers.*.ffn.output", "final_norm"};
  const auto sites = matching_sites(run.model().program(), patterns);
  const auto out = temporary("capture.safetensors");
  capture(run, kTokens, sites, out, /*folder=*/false);
  const auto file = base::MappedFile::open(out);
  std::filesystem::remove(out);
  const auto header = weights::parse_safetensors(file.bytes(), out);
  ASSERT_EQ(header.entries.size(), sites.size() + 1);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const auto& site = run.model().program().tensors[std::size_t(sites[i])];
    EXPECT_EQ(header.entries[i].name, site.name);
    EXPECT_EQ(header.entries[i].shape, (std::vector<std::uint64_t>{kTokens.size(), site.width}));
    const auto want = std::as_bytes(rows.rows(sites[i]));
    ASSERT_EQ(header.entries[i].end - header.entries[i].begin, want.size());
    EXPECT_EQ(std::memcmp(file.bytes().data() + header.entries[i].begin, want.data(), want.size()),
              0);
  }
  EXPECT_EQ(header.entries.back().name, "tokens");
  EXPECT_EQ(std::memcmp(file.bytes().data() + header.entries.back().begin, kTokens.data(),
                        kTokens.size() * sizeof(std::int32_t)),
            0);
}

TEST(Capture, GivesEachSiteItsOwnFileInAFolder) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  ModelRun run({.path = path, .threads = 1});
  const std::vector<std::string> patterns = {"layers.*.ffn.output"};
  const auto sites = matching_sites(run.model().program(), patterns);
  const auto out = temporary("folder");
  capture(run, kTokens, sites, out, /*folder=*/true);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(out))
    files += entry.path().extension() == ".safetensors";
  EXPECT_EQ(files, sites.size());
  EXPECT_TRUE(std::filesystem::exists(out / "layers.0.ffn.output.safetensors"));
  std::filesystem::remove_all(out);
}

TEST(SteeringVectors, AreTheDifferenceOfMeanRows) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  ModelRun run({.path = path, .threads = 1});
  const std::vector<std::string> patterns = {"layers.1.ffn.output"};
  const auto sites = matching_sites(run.model().program(), patterns);
  const Prompts positive = {{1, 403, 407}, {1, 261, 378, 432}}, negative = {{1, 383}};
  const std::size_t width = run.model().program().tensors[std::size_t(sites[0])].width;
  for (const SteerRows which : {SteerRows::kLast, SteerRows::kAll}) {
    std::vector<double> want(width);
    for (const Prompts* set : {&positive, &negative})
      for (const auto& prompt : *set) {
        const SiteRows rows = all_rows(run, prompt);
        const std::size_t first = which == SteerRows::kLast ? prompt.size() - 1 : 0;
        for (std::size_t t = first; t < prompt.size(); ++t)
          for (std::size_t i = 0; i < width; ++i)
            want[i] += (set == &positive ? 1.0 : -1.0) * double(rows.row(sites[0], t)[i]) /
                       double(prompt.size() - first) / double(set->size());
      }
    const auto vectors = steering_vectors(run, sites, positive, negative, which, {});
    ASSERT_EQ(vectors.size(), 1u);
    for (std::size_t i = 0; i < width; ++i) EXPECT_NEAR(double(vectors[0][i]), want[i], 1e-6);
  }
}

TEST(SteeringVectors, RefuseSitesThatCannotBeSteered) {
  LEMMA_TEST_DATA_OR_SKIP(path, "goldens/qwen3moe/model.gguf");
  ModelRun run({.path = path, .threads = 1});
  for (const char* name : {"embedding", "layers.0.ffn.experts_chosen"}) {
    const std::vector<std::string> patterns = {name};
    const auto sites = matching_sites(run.model().program(), patterns);
    EXPECT_THROW(steering_vectors(run, sites, {{1}}, {{2}}, SteerRows::kLast, {}), Error) << name;
  }
}

}  // namespace
}  // namespace lemma::eval
