// SPDX-License-Identifier: Apache-2.0
// Quantized kernels in a whole model: the same bits however tokens are cut, beside whom and on how
// many threads, and logits near the reference on the dequantized weights. The formats of everyday
// files go through a full model, and on two threads of the processor's own level through every cut;
// the others through a narrow model and some cuts; with LEMMA_DEEP=1 all go through everything.
#include "seeded_model.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "golden_models.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using weights::Format;

constexpr std::size_t kVocabulary = 512;

/// A model of one format, written before each test and removed after it.
class WrittenModel : public ::testing::TestWithParam<Format> {
 protected:
  explicit WrittenModel(SeededSize size) : size_(size) {}
  void SetUp() override {
    // The process is part of the name: another run of this program would write under a mapping.
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("lemma-seeded-" + std::to_string(::getpid()) + "-" +
             std::string(weights::traits(GetParam()).name) + ".gguf");
    write_seeded_model(path_, GetParam(), size_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  SeededSize size_;
  std::filesystem::path path_;
  std::vector<std::int32_t> tokens_ = seeded_tokens();
};

class SeededModel : public WrittenModel {
 protected:
  SeededModel() : WrittenModel(SeededSize::kFull) {}
};
class NarrowModel : public WrittenModel {
 protected:
  NarrowModel() : WrittenModel(SeededSize::kNarrow) {}
};

constexpr std::size_t kEveryday = 8;  // F32 to Q5_0, the first of the list

std::vector<Format> full_formats() {
  const auto end = deep() ? weights::kFormats.end() : weights::kFormats.begin() + kEveryday;
  return {weights::kFormats.begin(), end};
}

/// Where to cut `tokens` rows in two: everywhere, or only where a tile or a page begins or ends.
std::vector<std::uint32_t> cuts(std::size_t tokens, int threads) {
  std::vector<std::uint32_t> all(tokens - 1);
  std::iota(all.begin(), all.end(), 1u);
  if (deep() || (threads == 2 && std::getenv("LEMMA_ISA") == nullptr)) return all;
  return {1, 7, 16, 33, all.back()};
}

std::string name_of(const ::testing::TestParamInfo<Format>& format) {
  return std::string(weights::traits(format.param).name);
}
INSTANTIATE_TEST_SUITE_P(Formats, SeededModel, ::testing::ValuesIn(full_formats()), name_of);
INSTANTIATE_TEST_SUITE_P(Formats, NarrowModel,
                         ::testing::ValuesIn(weights::kFormats.begin() + kEveryday,
                                             weights::kFormats.end()),
                         name_of);

double rms(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Activations are rounded to int8 in groups of 32: an error uniform in +-max/254, so of RMS
// max/440, where a group's max is about 2.5 times its RMS. That is 0.6 % of a product's RMS, and
// independent errors of the 9 products in a row add to 1.7 %; weights cause none, since the
// reference multiplies the same dequantized ones. The bound is three times that.
constexpr double kFastBound = 0.05;
// Where entered rows are rounded to bf16 a product is off by 0.17 % of its RMS
// (tolerance::kBf16Project), 9 of them by 0.5 %; three times that.
constexpr double kBf16Bound = 0.015;
// Where they are rounded to whole numbers of 13 bits, with the weights, a product of normal numbers
// is off by 0.027 % of its RMS (tolerance::kWholeProject), 9 of them by 0.08 %; three times that.
constexpr double kWholeBound = 0.0025;
// Where entered rows are attended to in whole numbers a mean is off by 0.25 % of its RMS at scores
// of 50 (tolerance::kWholeAttend), once in each of the two layers, 0.35 %; twice that.
constexpr double kWholeAttentionBound = 0.007;
// Without rounding only the order of sums differs.
constexpr double kExactBound = 2e-5;

/// The bound for weights that are not quantized, by what placements say of entered rows.
double bound_of_floats(GoldenRun& run) {
  const auto placements = run.space->executable().placements();
  const auto anywhere = [&](const char* words) {
    return std::any_of(placements.begin(), placements.end(), [&](const backend::Placement& p) {
      return p.implementation.find(words) != std::string::npos;
    });
  };
  const double products = anywhere("x bf16")    ? kBf16Bound
                          : anywhere("x int13") ? kWholeBound
                                                : kExactBound;
  return products + (anywhere("13-bit whole numbers entered") ? kWholeAttentionBound : 0.0);
}

/// Logits of both numerics against the reference's.
void expect_near_the_reference(const std::filesystem::path& path, Format format,
                               const std::vector<std::int32_t>& tokens) {
  GoldenRun reference = open_golden(path, {.backend = BackendKind::kReference});
  const std::vector<float> expected = evaluate(reference, tokens);
  const bool exact = weights::traits(format).block_elements == 1;
  for (const NumericsMode numerics : {NumericsMode::kFast, NumericsMode::kStrict}) {
    GoldenRun cpu = open_golden(path, {.numerics = numerics});
    std::vector<float> difference = evaluate(cpu, tokens);
    ASSERT_EQ(difference.size(), expected.size());
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
    const double error = rms(difference) / rms(expected);
    const bool strict = numerics == NumericsMode::kStrict;
    std::printf("[ measured ] %-7s %-6s relative RMS error of the logits %.2e\n",
                std::string(weights::traits(format).name).c_str(), strict ? "strict" : "fast",
                error);
    EXPECT_LE(error, strict ? kExactBound : exact ? bound_of_floats(cpu) : kFastBound);
  }
}

TEST_P(SeededModel, StaysNearTheReferenceOnTheDequantizedWeights) {
  expect_near_the_reference(path_, GetParam(), tokens_);
}

TEST_P(NarrowModel, StaysNearTheReferenceOnTheDequantizedWeights) {
  expect_near_the_reference(path_, GetParam(), tokens_);
}

TEST_P(NarrowModel, HasTheSameBitsHoweverItIsCut) {
  GoldenRun one = open_golden(path_, {.threads = 1});
  const std::vector<float> whole = evaluate(one, tokens_);
  for (const int threads : {1, 2, 3}) {
    GoldenRun run = open_golden(path_, {.threads = threads});
    for (const std::uint32_t cut : {1u, 9u, 39u})
      ASSERT_EQ(bit_difference(whole, evaluate(run, tokens_, {.cuts = {cut}}), kVocabulary), "")
          << "cut before " << cut << ", " << threads << " threads";
    ASSERT_EQ(bit_difference(whole, evaluate(run, tokens_, {.stepwise = true}), kVocabulary), "");
  }
}

TEST_P(SeededModel, HasTheSameBitsHoweverItIsCut) {
  for (const int threads : {1, 2, 3}) {
    GoldenRun run = open_golden(path_, {.threads = threads});
    const std::vector<float> whole = evaluate(run, tokens_);
    for (const std::uint32_t cut : cuts(tokens_.size(), threads))
      ASSERT_EQ(bit_difference(whole, evaluate(run, tokens_, {.cuts = {cut}}), kVocabulary), "")
          << "cut before " << cut << ", " << threads << " threads";
    ASSERT_EQ(bit_difference(whole, evaluate(run, tokens_, {.stepwise = true}), kVocabulary), "");
  }
}

// Generated tokens may have an arithmetic of their own; within it, cuts change nothing either.
TEST_P(SeededModel, HasTheSameBitsAfterAGeneratedTailHoweverItIsCut) {
  GoldenRun run = open_golden(path_, {.threads = 2});
  const std::vector<float> whole = evaluate(run, tokens_, {.generated_from = 24});
  for (const std::uint32_t cut : {5u, 24u, 25u, 31u})
    ASSERT_EQ(bit_difference(whole, evaluate(run, tokens_, {.cuts = {cut}, .generated_from = 24}),
                             kVocabulary),
              "");
  ASSERT_EQ(bit_difference(whole, evaluate(run, tokens_, {.stepwise = true, .generated_from = 24}),
                           kVocabulary),
            "");
}

TEST_P(SeededModel, IgnoresTheClassInStrictNumerics) {
  GoldenRun run = open_golden(path_, {.numerics = NumericsMode::kStrict});
  const std::vector<float> whole = evaluate(run, tokens_);
  ASSERT_EQ(bit_difference(whole, evaluate(run, tokens_, {.stepwise = true, .generated_from = 9}),
                           kVocabulary),
            "");
}

TEST_P(SeededModel, HasTheSameBitsInEveryStateFormatHoweverItIsCut) {
  for (const auto format :
       {algorithm::RowFormat::kF16, algorithm::RowFormat::kBF16, algorithm::RowFormat::kQ8}) {
    GoldenRun run = open_golden(path_, {.threads = 2, .format = format});
    const std::vector<float> whole = evaluate(run, tokens_);
    for (const std::uint32_t cut : {1u, 16u, 17u, 39u})
      ASSERT_EQ(bit_difference(whole, evaluate(run, tokens_, {.cuts = {cut}}), kVocabulary), "")
          << algorithm::to_string(format);
  }
}

}  // namespace
}  // namespace lemma::test
