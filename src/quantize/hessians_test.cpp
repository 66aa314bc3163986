// SPDX-License-Identifier: Apache-2.0
#include "quantize/hessians.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "quantize/gptq.hpp"
#include "quantize/importance_collector.hpp"
#include "quantize/quantize.hpp"
#include "test_data.hpp"
#include "weights/expect_error.hpp"
#include "weights/formats/codes.hpp"
#include "weights/gguf/checkpoint.hpp"
#include "weights/view.hpp"

namespace lemma::quantize {
namespace {

namespace fs = std::filesystem;
using weights::expect_error;

std::unique_ptr<runtime::LoadedModel> golden(const std::string& name) {
  return runtime::LoadedModel::open(test::source_dir() / "tests/goldens" / name / "model.gguf",
                                    {.threads = 1});
}

/// Two windows of 37 and 9 tokens.
void windows(const std::function<void(std::span<const std::int32_t>)>& body) {
  std::vector<std::int32_t> ids(46);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = std::int32_t(i * i * 7 % 60 + 1);
  body(std::span(ids).first(37));
  body(std::span(ids).subspan(37));
}

TEST(Hessians, HaveTheImportanceOnTheirDiagonal) {
  const auto model = golden("qwen3moe");
  const Importance importance = collect_importance(*model, windows, {.window = 40}).importance;
  Hessians hessians(*model, windows, {.window = 40}, 2);
  for (const auto& [name, entry] : importance.entries) {
    ASSERT_TRUE(hessians.knows(name)) << name;
    for (std::size_t m = 0; m < entry.matrices(); ++m) {
      const Hessians::Hessian hessian = hessians.at(name, m);
      EXPECT_EQ(hessian.rows, entry.counts[m]) << name;
      for (std::size_t c = 0; c < entry.cols; ++c)
        EXPECT_NEAR(hessian.sum[c * entry.cols + c], entry.sums[m * entry.cols + c],
                    1e-4 * entry.sums[m * entry.cols + c] + 1e-9)
            << name;
    }
  }
}

TEST(Hessians, AreOfOneRunWhereMemoryAllows) {
  const auto model = golden("qwen3moe");
  const std::vector<std::string> order = {"blk.0.attn_q.weight", "blk.0.attn_k.weight",
                                          "blk.0.attn_output.weight", "blk.0.ffn_down_exps.weight",
                                          "blk.1.attn_q.weight"};
  std::vector<std::vector<float>> sums;
  for (const std::uint64_t budget : {std::uint64_t{1} << 30, std::uint64_t{1}}) {
    Hessians hessians(*model, windows, {.window = 40, .rows = budget == 1 ? 5u : 64u},
                      budget == 1 ? 1 : 3, budget);
    hessians.expect(order);
    std::vector<float> all;
    for (const std::string& name : order) {
      const Hessians::Hessian hessian = hessians.at(name, 1);
      all.insert(all.end(), hessian.sum.begin(), hessian.sum.end());
    }
    EXPECT_EQ(hessians.runs(), budget == 1 ? 4u : 1u);  // query and key read the same rows
    sums.push_back(std::move(all));
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(Hessians, OfExpertsThatNoRowReachedSaySo) {
  const auto model = golden("qwen3moe");
  const std::vector<std::int32_t> one = {5};
  Hessians hessians(
      *model, [&](const auto& body) { body(std::span(one)); }, {.window = 8}, 1);
  const auto& moe = std::get<model::Moe>(model->plan().layers[0].sites[1].mixer);
  std::size_t seen = 0;
  for (std::size_t e = 0; e < moe.routing.experts; ++e)
    seen += hessians.at("blk.0.ffn_up_exps.weight", e).rows > 0;
  EXPECT_EQ(seen, moe.routing.chosen);
}

/// A trained model, small, and text of its kind.
class GptqOfAModel : public testing::Test {
 protected:
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(path, "models/stories260K-f32.gguf");
    model_ = runtime::LoadedModel::open(path, {.threads = 1});
    std::string text;
    for (const char* name : {"Tom", "Lily", "Max", "Ann"})
      for (const char* thing : {"a red ball", "the old tree", "her little cat", "a big box"})
        text += std::string("Once upon a time, ") + name + " found " + thing +
                " in the park. Mom said it was time to go home. They were very happy and played "
                "all day with their friend. ";
    ids_ = model_->tokenizer()->encode(text);
    folder_ = fs::path(testing::TempDir()) /
              ("lemma_gptq_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Windows windows() const {
    return [this](const auto& body) {
      for (std::size_t at = 0; at < ids_.size(); at += 128)
        body(std::span(ids_).subspan(at, std::min<std::size_t>(128, ids_.size() - at)));
    };
  }
  std::unique_ptr<const weights::Checkpoint> quantized(const char* format, Hessians* hessians,
                                                       const char* name, int threads = 1) {
    Options options{.recipe = recipe_by_name(format), .hessians = hessians, .threads = threads};
    report_ = quantize(model_->checkpoint(), folder_ / name, options);
    return weights::gguf::open(folder_ / name);
  }
  static std::vector<float> values(const weights::Checkpoint& checkpoint, const std::string& name) {
    const weights::TensorInfo& tensor = checkpoint.at(name);
    return weights::to_f32(
        weights::bind(checkpoint, {name, {}}, tensor.rows(), tensor.row_elements()));
  }
  double error(const weights::Checkpoint& checkpoint, const std::string& name, Hessians& hessians) {
    const std::vector<float> want = values(model_->checkpoint(), name);
    std::vector<float> got = values(checkpoint, name);
    const std::size_t cols = checkpoint.at(name).row_elements();
    const Hessians::Hessian hessian = hessians.at(name, 0);
    for (std::size_t i = 0; i < got.size(); ++i) got[i] -= want[i];
    double sum = 0;
    for (std::size_t at = 0; at < got.size(); at += cols)
      sum += output_error(std::span(got).subspan(at, cols), hessian.sum);
    return sum;
  }

  std::unique_ptr<runtime::LoadedModel> model_;
  std::vector<std::int32_t> ids_;
  fs::path folder_;
  Report report_;
};

TEST_F(GptqOfAModel, LeavesSmallerErrorsInTheOutputsOfNearlyAllMatrices) {
  Hessians hessians(*model_, windows(), {.window = 128}, 1);
  for (const char* format : {"Q4_0", "Q4_1", "Q5_0"}) {
    const auto plain = quantized(format, nullptr, "plain.gguf");
    const auto chosen = quantized(format, &hessians, "gptq.gguf");
    std::size_t better = 0, all = 0;
    double sum_plain = 0, sum_chosen = 0;
    for (const weights::TensorInfo& tensor : chosen->tensors()) {
      if (!weights::formats::has_codes(tensor.format) || !hessians.knows(tensor.name)) continue;
      const double rounded = error(*plain, tensor.name, hessians);
      const double ours = error(*chosen, tensor.name, hessians);
      ++all;
      better += ours < rounded;
      sum_plain += rounded;
      sum_chosen += ours;
    }
    EXPECT_GT(all, 25u) << format;
    EXPECT_GE(double(better), 0.95 * double(all)) << format;
    EXPECT_LT(sum_chosen, 0.8 * sum_plain) << format;
  }
}

TEST_F(GptqOfAModel, ThreadsDoNotShow) {
  const auto bytes = [&](int threads) {
    Hessians hessians(*model_, windows(), {.window = 128}, threads);
    const auto made = quantized("Q4_0", &hessians, threads == 1 ? "one" : "three", threads);
    std::vector<float> all;
    for (const weights::TensorInfo& tensor : made->tensors()) {
      const std::vector<float> own = values(*made, tensor.name);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  };
  EXPECT_EQ(bytes(1), bytes(3));
}

TEST_F(GptqOfAModel, RefusesFormatsWithoutCodesByName) {
  Hessians hessians(*model_, windows(), {.window = 128}, 1);
  expect_error(ErrorKind::kUsage, "IQ4_NL of 'blk.0.attn_q.weight'",
               [&] { quantized("IQ4_NL", &hessians, "refused.gguf"); });
  EXPECT_FALSE(fs::exists(folder_ / "refused.gguf"));
}

}  // namespace
}  // namespace lemma::quantize
