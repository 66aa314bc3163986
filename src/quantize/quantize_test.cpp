// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantize.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "weights/expect_error.hpp"
#include "weights/gguf/checkpoint.hpp"
#include "weights/gguf/writer.hpp"
#include "weights/view.hpp"

namespace lemma::quantize {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using weights::expect_error;

constexpr std::uint32_t kWidth = 256, kExperts = 4, kHidden = 256, kVocabulary = 96;

/// Numbers like those of trained weights: a bell, and a few large ones.
std::vector<float> noise(std::size_t n, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  std::vector<float> values(n);
  for (float& value : values) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += float(state >> 40) * 0x1p-24f - 0.5f;
    }
    value = 0.1f * sum;
  }
  return values;
}

class Quantize : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("lemma_quantize_" + std::string(info->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    out_ = folder_ / "out.gguf";
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// A model of one layer with four experts; `poison` names a tensor whose last number is NaN.
  std::unique_ptr<const weights::Checkpoint> model(std::string_view poison = "") {
    weights::gguf::Writer writer;
    writer.add("general.architecture", "llama");
    writer.add("general.name", "a model");
    writer.add("general.file_type", std::uint32_t{0});
    writer.add("llama.context_length", std::uint32_t{64});
    writer.add("llama.embedding_length", kWidth);
    writer.add("llama.block_count", std::uint32_t{1});
    writer.add("llama.feed_forward_length", kHidden);
    writer.add("llama.attention.head_count", std::uint32_t{4});
    writer.add("llama.attention.head_count_kv", std::uint32_t{4});
    writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer.add("llama.rope.dimension_count", std::uint32_t{64});
    writer.add("llama.expert_count", kExperts);
    writer.add("llama.expert_used_count", std::uint32_t{2});
    writer.add("a.list", std::vector<std::string>{"x", "y"});
    const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) {
      std::size_t n = 1;
      for (const std::uint64_t size : shape) n *= size;
      std::vector<float>& values = tensors_[name] = noise(n, tensors_.size());
      if (name == poison) values.back() = std::numeric_limits<float>::quiet_NaN();
      writer.add_tensor(name, Format::kF32, std::move(shape), std::as_bytes(std::span(values)));
    };
    add("token_embd.weight", {kVocabulary, kWidth});
    add("output_norm.weight", {kWidth});
    add("output.weight", {kVocabulary, kWidth});
    for (const char* norm : {"attn_norm", "ffn_norm"})
      add(std::string("blk.0.") + norm + ".weight", {kWidth});
    for (const char* square : {"attn_q", "attn_k", "attn_v", "attn_output"})
      add(std::string("blk.0.") + square + ".weight", {kWidth, kWidth});
    add("blk.0.ffn_gate_inp.weight", {kExperts, kWidth});
    for (const char* stack : {"ffn_gate_exps", "ffn_up_exps"})
      add(std::string("blk.0.") + stack + ".weight", {kExperts, kHidden, kWidth});
    add("blk.0.ffn_down_exps.weight", {kExperts, kWidth, kHidden});
    writer.write(folder_ / "in.gguf");
    return weights::gguf::open(folder_ / "in.gguf");
  }

  static std::vector<float> values(const weights::Checkpoint& checkpoint, std::string_view name) {
    const weights::TensorInfo& tensor = checkpoint.at(name);
    return weights::to_f32(
        weights::bind(checkpoint, {std::string(name), {}}, tensor.rows(), tensor.row_elements()));
  }
  static std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static Options options(std::string_view format) { return {.recipe = recipe_by_name(format)}; }

  fs::path folder_, out_;
  std::map<std::string, std::vector<float>, std::less<>> tensors_;
};

TEST_F(Quantize, MatricesChangeAndTheRestStays) {
  const auto in = model();
  const Report report = quantize(*in, out_, options("Q8_0"));
  EXPECT_EQ(report.tensors, in->tensors().size());
  EXPECT_TRUE(report.notes.empty());
  const auto out = weights::gguf::open(out_);
  for (const weights::TensorInfo& tensor : in->tensors()) {
    const bool matrix = tensor.shape.size() > 1 && tensor.name != "blk.0.ffn_gate_inp.weight";
    EXPECT_EQ(out->at(tensor.name).format, matrix ? Format::kQ8_0 : Format::kF32) << tensor.name;
    EXPECT_EQ(out->at(tensor.name).shape, tensor.shape);
    const std::vector<float> was = values(*in, tensor.name), is = values(*out, tensor.name);
    for (std::size_t i = 0; i < was.size(); ++i)
      ASSERT_NEAR(is[i], was[i], matrix ? 0.2f / 127 : 0.f) << tensor.name << " " << i;
  }
}

TEST_F(Quantize, TheModelsFactsAreTakenOver) {
  const auto in = model();
  quantize(*in, out_, options("Q4_K_M"));
  const auto out = weights::gguf::open(out_);
  for (const auto& [key, value] : in->metadata().pairs()) {
    if (key == "general.file_type") continue;  // is true of the source only
    const weights::Value* found = out->metadata().find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(found->data, value.data) << key;
    EXPECT_EQ(found->type_name, value.type_name) << key;
  }
  EXPECT_FALSE(out->metadata().has("general.file_type"));
  EXPECT_EQ(out->metadata().string("lemma.quantize.recipe"), "Q4_K_M");
}

TEST_F(Quantize, TheNumberOfThreadsDoesNotShow) {
  const auto in = model();
  std::string first;
  for (const int threads : {1, 3}) {
    Options own = options("Q3_K_M");
    own.threads = threads;
    quantize(*in, out_, own);
    if (first.empty()) first = bytes_of(out_);
    EXPECT_EQ(bytes_of(out_), first);
  }
}

TEST_F(Quantize, ImportanceOfAnExpertIsItsOwn) {
  const auto in = model();
  Importance importance;
  Importance::Entry entry{kWidth, std::vector<float>(kExperts * kWidth, 1e-4f),
                          std::vector<float>(kExperts, 1.f)};
  // Expert 1: only the first column of each block of 32 counts. Expert 3: never seen.
  for (std::size_t c = 0; c < kWidth; c += 32) entry.sums[1 * kWidth + c] = 1.f;
  entry.counts[3] = 0;
  importance.entries["blk.0.ffn_up_exps.weight"] = entry;
  Options plain = options("Q4_0"), weighed = options("Q4_0");
  weighed.importance = &importance;
  quantize(*in, folder_ / "plain.gguf", plain);
  const Report report = quantize(*in, out_, weighed);
  ASSERT_EQ(report.notes.size(), 2u);
  EXPECT_THAT(report.notes[0].text, HasSubstr("does not know it"));
  EXPECT_THAT(report.notes[0].tensors, testing::Contains("blk.0.attn_q.weight"));
  EXPECT_THAT(report.notes[1].text, HasSubstr("1 of 4 experts were never seen"));
  EXPECT_THAT(report.notes[1].tensors, testing::ElementsAre("blk.0.ffn_up_exps.weight"));

  const std::vector<float> want = values(*in, "blk.0.ffn_up_exps.weight");
  const auto error = [&](const fs::path& path, std::size_t expert) {
    const std::vector<float> got = values(*weights::gguf::open(path), "blk.0.ffn_up_exps.weight");
    double sum = 0;
    for (std::size_t r = 0; r < kHidden; ++r)
      for (std::size_t c = 0; c < kWidth; c += 32) {
        const std::size_t i = (expert * kHidden + r) * kWidth + c;
        sum += std::pow(double(got[i]) - want[i], 2);
      }
    return sum;
  };
  EXPECT_LT(error(out_, 1), 0.5 * error(folder_ / "plain.gguf", 1));
  EXPECT_EQ(error(out_, 3), error(folder_ / "plain.gguf", 3));
}

TEST_F(Quantize, GoesOnWhereItWasInterrupted) {
  const auto in = model();
  quantize(*in, out_, options("Q6_K"));
  const std::string whole = bytes_of(out_);
  Options stopped = options("Q6_K");
  stopped.progress = [](std::string_view, double fraction) {
    if (fraction > 0.5) throw Error(ErrorKind::kCancelled, "stopped");
  };
  fs::remove(out_);
  expect_error(ErrorKind::kCancelled, "stopped", [&] { quantize(*in, out_, stopped); });
  EXPECT_FALSE(fs::exists(out_));
  const Report report = quantize(*in, out_, options("Q6_K"));
  EXPECT_GT(report.resumed, 3u);
  EXPECT_EQ(bytes_of(out_), whole);
}

TEST_F(Quantize, AnotherRecipeDoesNotGoOnWithTheLeftover) {
  const auto in = model();
  Options stopped = options("Q6_K");
  stopped.progress = [](std::string_view, double fraction) {
    if (fraction > 0.5) throw Error(ErrorKind::kCancelled, "stopped");
  };
  expect_error(ErrorKind::kCancelled, "stopped", [&] { quantize(*in, out_, stopped); });
  EXPECT_EQ(quantize(*in, out_, options("Q8_0")).resumed, 0u);
}

TEST_F(Quantize, RefusesNumbersThatAreNotFinite) {
  const auto in = model("blk.0.attn_k.weight");
  expect_error(ErrorKind::kBadFile, "tensor 'blk.0.attn_k.weight': row 255 holds a number",
               [&] { quantize(*in, out_, options("Q8_0")); });
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(Quantize, RefusesRulesThatNothingMatches) {
  const auto in = model();
  Options own = options("Q8_0");
  own.rules = {parse_rule("blk.7.*=Q6_K")};
  expect_error(ErrorKind::kUsage, "'blk.7.*=Q6_K': no tensor matches",
               [&] { quantize(*in, out_, own); });
}

TEST_F(Quantize, RefusesToWriteOverItsInput) {
  const auto in = model();
  expect_error(ErrorKind::kUsage, "is the file that is read",
               [&] { quantize(*in, folder_ / "in.gguf", options("Q8_0")); });
}

TEST_F(Quantize, TwoBitExpertsBesideEightBitAttention) {
  const auto in = model();
  quantize(*in, out_, options("MOE_2BIT"));
  const auto out = weights::gguf::open(out_);
  EXPECT_EQ(out->at("blk.0.ffn_gate_exps.weight").format, Format::kIQ2_XXS);
  EXPECT_EQ(out->at("blk.0.ffn_down_exps.weight").format, Format::kQ2_K);
  EXPECT_EQ(out->at("blk.0.attn_v.weight").format, Format::kQ8_0);
  EXPECT_EQ(out->at("token_embd.weight").format, Format::kF16);
}

}  // namespace
}  // namespace lemma::quantize
