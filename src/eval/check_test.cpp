// SPDX-License-Identifier: Apache-2.0
#include "eval/check.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "test_data.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::eval {
namespace {

const std::vector<std::int32_t> kTokens = {1, 403, 407, 261, 378, 432, 383, 286, 261, 376};

/// A copy of `model` in which one weight of `tensor` is larger by 0.5; removed with this.
class SpoiltModel {
 public:
  SpoiltModel(const std::filesystem::path& model, const std::string& tensor)
      : path_(std::filesystem::temp_directory_path() /
              ("lemma-spoilt-" + std::to_string(::getpid()) + ".gguf")) {
    std::ifstream in(model, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const auto checkpoint = weights::open_checkpoint(model);
    const auto target = checkpoint->at(tensor).bytes;
    const std::string needle(reinterpret_cast<const char*>(target.data()), target.size());
    const std::size_t at = bytes.find(needle);
    float weight = 0;
    std::memcpy(&weight, bytes.data() + at, sizeof weight);
    weight += 0.5f;
    std::memcpy(bytes.data() + at, &weight, sizeof weight);
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~SpoiltModel() { std::filesystem::remove(path_); }
  SpoiltModel(const SpoiltModel&) = delete;
  SpoiltModel& operator=(const SpoiltModel&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string first_failed(const CheckReport& report) {
  return report.first_failed ? report.sites[*report.first_failed].site.name : "";
}

CheckReport check_spoilt(const std::filesystem::path& model, const std::string& tensor,
                         const CheckOptions& options) {
  const SpoiltModel spoilt(model, tensor);
  ModelRun reference({.path = model, .backend = BackendKind::kReference});
  ModelRun backend({.path = spoilt.path(), .threads = 1});
  return check(reference, backend, kTokens, options);
}

TEST(Check, NamesTheFirstSiteThatIsWrong) {
  LEMMA_TEST_DATA_OR_SKIP(model, "models/stories260K-f32.gguf");
  for (const bool forced : {false, true}) {
    EXPECT_EQ(first_failed(check_spoilt(model, "blk.2.attn_k.weight", {.teacher_forced = forced})),
              "layers.2.attention.key");
    EXPECT_EQ(
        first_failed(check_spoilt(model, "blk.3.ffn_down.weight", {.teacher_forced = forced})),
        "layers.3.ffn.output");
  }
}

TEST(Check, SpreadsAnErrorOnlyWithoutTeacherForcing) {
  LEMMA_TEST_DATA_OR_SKIP(model, "models/stories260K-f32.gguf");
  const auto later_failures = [](const CheckReport& report) {
    return std::count_if(report.sites.begin(), report.sites.end(), [](const SiteReport& site) {
      return site.site.layer == 4U && !site.passed();
    });
  };
  EXPECT_GT(later_failures(check_spoilt(model, "blk.3.ffn_down.weight", {})), 0);
  EXPECT_EQ(later_failures(check_spoilt(model, "blk.3.ffn_down.weight", {.teacher_forced = true})),
            0);
}

TEST(Check, SeesAFaultInTheLogitsAlone) {
  LEMMA_TEST_DATA_OR_SKIP(model, "models/stories260K-f32.gguf");
  const CheckReport report =
      check_spoilt(model, "blk.0.attn_v.weight", {.generated_from = 6, .logits_only = true});
  ASSERT_EQ(report.sites.size(), 1U);
  EXPECT_EQ(first_failed(report), "logits");
  EXPECT_EQ(report.logits.positions(), kTokens.size());
  EXPECT_GT(report.logits.mean_kl(), 0.0);
}

TEST(Check, ReportsTheLayersThatWereAskedForAndTheLogits) {
  LEMMA_TEST_DATA_OR_SKIP(model, "models/stories260K-f32.gguf");
  ModelRun reference({.path = model, .backend = BackendKind::kReference});
  ModelRun backend({.path = model, .threads = 1});
  for (const bool forced : {false, true}) {
    const CheckReport report =
        check(reference, backend, kTokens, {.teacher_forced = forced, .layers = LayerRange{1, 2}});
    ASSERT_GT(report.sites.size(), 2U);
    EXPECT_EQ(report.sites.front().site.layer, 1U);
    EXPECT_EQ(report.sites[report.sites.size() - 2].site.layer, 2U);
    EXPECT_EQ(report.sites.back().site.name, "logits");
    EXPECT_FALSE(report.first_failed);
  }
  EXPECT_THROW(check(reference, backend, kTokens, {.layers = LayerRange{4, 5}}), Error);
}

TEST(Check, FindsAFaultOfALayerThatItReportsAndNoOther) {
  LEMMA_TEST_DATA_OR_SKIP(model, "models/stories260K-f32.gguf");
  const auto check_layer = [&](std::uint32_t layer) {
    return first_failed(check_spoilt(model, "blk.2.attn_k.weight",
                                     {.teacher_forced = true, .layers = LayerRange{layer, layer}}));
  };
  EXPECT_EQ(check_layer(1), "");
  EXPECT_EQ(check_layer(2), "layers.2.attention.key");
  EXPECT_EQ(check_layer(3), "");
}

TEST(Check, HoldsNoMoreRowsOfADeepModelOrALongText) {
  LEMMA_TEST_DATA_OR_SKIP(model, "models/stories260K-f32.gguf");
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < 400; ++i) tokens.push_back(kTokens[i % kTokens.size()]);
  ModelRun reference({.path = model, .backend = BackendKind::kReference});
  ModelRun backend({.path = model, .threads = 1});
  std::size_t all = 0, widest = 0;
  for (const backend::Program::Site& site : backend.model().program().tensors) {
    all += site.width * tokens.size() * sizeof(float);
    widest = std::max<std::size_t>(widest, site.width);
  }
  const std::size_t step = check_rows(backend.model().program());
  EXPECT_EQ(step, 64U);
  for (const bool forced : {false, true}) {
    const CheckReport report = check(reference, backend, tokens, {.teacher_forced = forced});
    EXPECT_GT(report.most_held, 0U);
    EXPECT_LE(report.most_held, kHeldBytes);
    EXPECT_LT(report.most_held, all / 4);
    EXPECT_GE(report.most_held, widest * sizeof(float));
  }
}

TEST(Check, ComparesAnEncoderOnWholeTexts) {
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/bert/model.gguf");
  ModelRun reference({.path = model, .backend = BackendKind::kReference});
  ModelRun backend({.path = model, .threads = 1});
  const std::vector<std::int32_t> tokens = {2, 5, 9, 4, 7, 3};
  for (const bool forced : {false, true}) {
    const CheckReport report = check(reference, backend, tokens, {.teacher_forced = forced});
    EXPECT_EQ(first_failed(report), "");
    EXPECT_NE(report.sites.back().site.name, "logits");
    EXPECT_EQ(report.logits.positions(), 0U);
  }
  EXPECT_THROW(check(reference, backend, tokens, {.generated_from = 2}), Error);
}

TEST(Check, RefusesIdsOutsideTheVocabulary) {
  LEMMA_TEST_DATA_OR_SKIP(model, "models/stories260K-f32.gguf");
  ModelRun reference({.path = model, .backend = BackendKind::kReference});
  ModelRun backend({.path = model, .threads = 1});
  EXPECT_THROW(check(reference, backend, std::vector<std::int32_t>{1, 512}, {}), Error);
}

}  // namespace
}  // namespace lemma::eval
