// SPDX-License-Identifier: Apache-2.0
// Same input, same output, in every weight format, through attention, experts and recurrence: the
// bits do not depend on where the tokens are cut, on threads, on company, at every level of kernels
// that this processor has, whether tokens count as entered or as generated. By default each level
// takes its share of the ways, lower ones of fewer tokens; under LEMMA_DEEP=1 every level takes
// every cut on 1, 2 and 3 threads.
#include "wide_models.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_features.hpp"
#include "model_runs.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using weights::Format;

constexpr std::uint32_t kGeneratedFrom = 7;

/// Caps the level of kernels of models that are loaded while it lives.
class IsaCap {
 public:
  explicit IsaCap(base::Isa isa) {
    if (const char* const value = std::getenv("LEMMA_ISA")) before_ = value;
    ::setenv("LEMMA_ISA", std::string(base::to_string(isa)).c_str(), 1);
  }
  ~IsaCap() {
    if (before_) {
      ::setenv("LEMMA_ISA", before_->c_str(), 1);
    } else {
      ::unsetenv("LEMMA_ISA");
    }
  }
  IsaCap(const IsaCap&) = delete;
  IsaCap& operator=(const IsaCap&) = delete;

 private:
  std::optional<std::string> before_;
};

struct Case {
  WideKind kind;
  Format format;
};

const char* name_of(WideKind kind) {
  static constexpr const char* kNames[] = {"dense", "experts", "hybrid"};
  return kNames[static_cast<std::size_t>(kind)];
}
std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::string(weights::traits(info.param.format).name) + "_" + name_of(info.param.kind);
}
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Format format : weights::kFormats)
    for (const WideKind kind : {WideKind::kDense, WideKind::kExperts, WideKind::kHybrid})
      all.push_back({kind, format});
  return all;
}

class WideModels : public ::testing::TestWithParam<Case> {
 protected:
  ModelUnderTest open(const RunOptions& options) const {
    WideModel wide = make_wide(GetParam().kind, GetParam().format);
    return under_test(runtime::LoadedModel::assemble(std::move(wide.weights), std::move(wide.plan),
                                                     load_options(options)),
                      options);
  }
  const std::vector<std::int32_t> tokens_ = wide_tokens();
};
INSTANTIATE_TEST_SUITE_P(Formats, WideModels, ::testing::ValuesIn(cases()), case_name);

/// A way to run some tokens on some threads.
struct Way {
  int threads;
  runtime::Chunking chunking;
};

std::vector<Way> ways(std::size_t tokens, bool best) {
  const std::optional<std::uint32_t> entered, generated = kGeneratedFrom;
  if (!deep() && !best) return {{3, {{9}, false, entered}}, {3, {{}, true, generated}}};
  if (!deep())
    return {{1, {{}, true, entered}},
            {2, {{9}, false, entered}},
            {2, {{21}, false, generated}},
            {3, {{33}, false, entered}},
            {3, {{}, true, generated}}};
  std::vector<Way> all;
  for (const int threads : {1, 2, 3})
    for (const auto& from : {entered, generated}) {
      all.push_back({threads, {{}, true, from}});
      for (std::uint32_t cut = 1; cut < tokens; ++cut)
        all.push_back({threads, {{cut}, false, from}});
    }
  return all;
}

std::string printed(const Way& way) {
  return std::to_string(way.threads) + " threads, " +
         (way.chunking.generated_from ? "a generated tail, " : "") +
         (way.chunking.stepwise ? "token by token"
                                : "cut before " + std::to_string(way.chunking.cuts.front()));
}

TEST_P(WideModels, HaveTheSameBitsHoweverTheyAreRun) {
  const std::vector<base::Isa> levels = base::tested_isas();
  for (const base::Isa isa : levels) {
    SCOPED_TRACE(std::string(base::to_string(isa)));
    const IsaCap cap(isa);
    const bool best = isa == levels.back();
    const std::size_t some = isa == base::Isa::kScalar ? 12 : 24;
    const std::span<const std::int32_t> tokens =
        std::span(tokens_).first(best || deep() ? tokens_.size() : some);
    ModelUnderTest models[3];
    for (int threads : {1, 2, 3})
      if (threads != 2 || best || deep())
        models[threads - 1] = open({.threads = threads, .sequences = 3});
    const std::vector<float> entered = evaluate(models[0], tokens);
    const std::vector<float> generated =
        evaluate(models[0], tokens, {.generated_from = kGeneratedFrom});
    for (const Way& way : ways(tokens.size(), best))
      ASSERT_EQ(
          bit_difference(way.chunking.generated_from ? generated : entered,
                         evaluate(models[way.threads - 1], tokens, way.chunking), kWideVocabulary),
          "")
          << printed(way);
    for (const auto& rows : evaluate_together(models[2], tokens))
      ASSERT_EQ(bit_difference(entered, rows, kWideVocabulary), "") << "beside others";
  }
}

// Otherwise a model that computes nothing would pass.
TEST_P(WideModels, StayNearTheReference) {
  ModelUnderTest reference = open({.backend = BackendKind::kReference});
  ModelUnderTest strict = open({.threads = 2, .numerics = NumericsMode::kStrict});
  const std::span<const std::int32_t> tokens = std::span(tokens_).first(12);
  const std::vector<float> expected = evaluate(reference, tokens);
  const std::vector<float> found = evaluate(strict, tokens);
  // Logits are about 1; without rounding of activations only the order of sums differs.
  EXPECT_LE(largest_difference(expected, found), 1e-4);
  const float largest = *std::max_element(found.begin(), found.end());
  EXPECT_GT(largest, 0.5f);
}

}  // namespace
}  // namespace lemma::test
