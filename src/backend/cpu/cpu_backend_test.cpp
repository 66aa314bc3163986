// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu_backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "backend/cpu/allocation_count.hpp"
#include "backend/cpu/conformance.hpp"
#include "backend/cpu/kernels/select.hpp"
#include "backend/cpu/packing.hpp"
#include "backend/reference/reference_backend.hpp"
#include "lemma/error.hpp"

namespace lemma::cpu {
namespace {

using namespace backend::conformance;
using algorithm::Activation;
using algorithm::GqaSpec;
using algorithm::RowFormat;
using backend::Numerics;
using weights::Format;

constexpr std::uint32_t kTokens = 45;

GqaSpec gqa(std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t dim,
            std::uint32_t value_dim) {
  GqaSpec spec;
  spec.query_heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = dim;
  spec.value_dim = value_dim;
  spec.scale = 1.f / std::sqrt(static_cast<float>(dim));
  return spec;
}

std::vector<Case> make_attention_cases() {
  std::vector<Case> cases;
  cases.push_back(attend_case(gqa(4, 4, 16, 16), "mha"));
  cases.push_back(attend_case(gqa(6, 2, 20, 12), "gqa of odd widths"));
  cases.push_back(attend_case(gqa(8, 1, 64, 64), "mqa"));
  GqaSpec spec = gqa(4, 2, 32, 32);
  spec.window = 7;
  cases.push_back(attend_case(spec, "window 7"));
  spec = gqa(4, 2, 32, 32);
  spec.sinks = true;
  spec.softcap = 20.f;
  cases.push_back(attend_case(spec, "sinks and soft-cap"));
  spec = gqa(6, 3, 16, 16);
  spec.alibi_max_bias = 8.f;
  cases.push_back(attend_case(spec, "alibi"));
  spec = gqa(4, 2, 16, 16);
  spec.temperature_scale = 0.1f;
  spec.temperature_floor = 8;
  cases.push_back(attend_case(spec, "query temperature"));
  for (Case& c : attention_family_cases()) cases.push_back(std::move(c));
  return cases;
}

std::vector<Case> rotate_cases() {
  std::vector<Case> cases;
  for (const bool split : {true, false}) {
    for (const bool prefix : {true, false}) {
      algorithm::RopeSpec rope;
      rope.rotary_dim = 18;
      rope.layout = split ? algorithm::RopeLayout::kSplitHalf : algorithm::RopeLayout::kInterleaved;
      rope.placement =
          prefix ? algorithm::RopePlacement::kPrefix : algorithm::RopePlacement::kSuffix;
      cases.push_back(rotate_case(rope, 24, !prefix));
    }
  }
  return cases;
}

// Cases are made once: the encoders search, and take longer than the programs.
const std::vector<Case>& attention_cases() {
  static const std::vector<Case> cases = make_attention_cases();
  return cases;
}

/// The formats of everyday files go through every operation. The others have the same executors
/// around kernels that project_test.cpp checks, so one of each layout of packed weights does.
constexpr std::span kEveryday = std::span(weights::kFormats).first<8>();

std::vector<Format> one_format_a_layout() {
  std::vector<Format> formats;
  for (const Format format : weights::kFormats) {
    const auto same = [&](Format other) { return kernel_of(other) == kernel_of(format); };
    if (std::none_of(formats.begin(), formats.end(), same)) formats.push_back(format);
  }
  return formats;
}

std::vector<Case> make_operation_cases() {
  std::vector<Case> cases = attention_cases();
  for (Case& c : rotate_cases()) cases.push_back(std::move(c));
  cases.push_back(embed_case(false));
  cases.push_back(embed_case(true));
  cases.push_back(norm_case(algorithm::NormKind::kRms, 0, false));
  cases.push_back(norm_case(algorithm::NormKind::kRms, 20, false));
  cases.push_back(norm_case(algorithm::NormKind::kLayer, 0, false));
  cases.push_back(norm_case(algorithm::NormKind::kLayer, 40, true));
  for (const Format format : kEveryday) {
    cases.push_back(mlp_case(Activation::kSilu, true, format));
    cases.push_back(head_case(format, 0.f));
  }
  for (const Format format : one_format_a_layout()) {
    cases.push_back(project_case(format, 512, true, 0.f));
  }
  cases.push_back(project_case(Format::kF32, 37, false, 0.8f));
  cases.push_back(project_case(Format::kQ8_0, 256, false, 0.8f));
  for (const auto activation : {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu,
                                Activation::kReluSquared, Activation::kSwigluOai}) {
    cases.push_back(mlp_case(activation, activation == Activation::kSwigluOai, Format::kF32));
  }
  cases.push_back(gate_case());
  cases.push_back(add_case());
  cases.push_back(head_case(Format::kF32, 3.f));
  for (auto* family :
       {row_family_cases, expert_family_cases, recurrent_family_cases, residual_family_cases}) {
    for (Case& c : family()) cases.push_back(std::move(c));
  }
  return cases;
}

/// Every operation, every format, every activation.
const std::vector<Case>& operation_cases() {
  static const std::vector<Case> cases = make_operation_cases();
  return cases;
}

/// The whole decoder in every everyday format, in the order of weights::kFormats.
const std::vector<Case>& decoder_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> made;
    for (const Format format : kEveryday) made.push_back(decoder_case(format));
    return made;
  }();
  return cases;
}

const Case& decoder_in(Format format) {
  return decoder_cases()[static_cast<std::size_t>(format)];
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> both = operation_cases();
    both.insert(both.end(), decoder_cases().begin(), decoder_cases().end());
    return both;
  }();
  return cases;
}

std::vector<float> rows_of(const Case& c, const RunOptions& options, const CpuOptions& cpu) {
  return run_case(*make_backend(cpu), c, options).rows;
}

std::size_t width_of(const Case& c) {
  for (const auto& tensor : c.program.tensors) {
    if (tensor.name == c.site) return tensor.width;
  }
  return c.program.vocabulary;
}

class CpuBackendTest : public ::testing::TestWithParam<base::Isa> {
 protected:
  CpuOptions options(int threads = 1, Numerics numerics = Numerics::kFast) const {
    return {.threads = threads, .isa = GetParam(), .numerics = numerics};
  }
  /// What entered rows of F16 and BF16 weights are rounded to on this level.
  EnteredRows entered() const {
    return kernels(GetParam()).entered[static_cast<std::size_t>(WeightKernel::kF16)];
  }
  bool rounds() const { return entered() != EnteredRows::kAsGenerated; }
  algorithm::Tolerance bound(const Case& c) const {
    return backend::conformance::bound(c, entered()) + attention_bound(c);
  }
  algorithm::Tolerance attention_bound(const Case& c) const {
    if (kernels(GetParam()).whole_attention == nullptr) return {};
    return backend::conformance::whole_attention_bound(c);
  }
};

TEST_P(CpuBackendTest, AgreesWithTheReferenceInEveryOperation) {
  for (const Case& c : operation_cases()) {
    const RunOptions run{.schedule = one_prefill(kTokens)};
    const std::vector<float> want = run_case(*reference::make_backend(), c, run).rows;
    EXPECT_EQ("", compare(rows_of(c, run, options()), want, width_of(c), bound(c))) << c.name;
  }
}

TEST_P(CpuBackendTest, AgreesWithTheReferenceInEveryStateFormat) {
  for (const Case& c : attention_cases()) {
    for (const RowFormat format : {RowFormat::kF16, RowFormat::kBF16, RowFormat::kQ8}) {
      const RunOptions run{.schedule = one_prefill(kTokens), .format = format};
      const std::vector<float> want = run_case(*reference::make_backend(), c, run).rows;
      // Where the two projections differ in the last bits, a row may round to the neighbouring
      // state value: one unit of the format, for a few elements of a row of keys or values.
      const double unit = format == RowFormat::kF16    ? 0x1p-11
                          : format == RowFormat::kBF16 ? 0x1p-8
                                                       : 0.004;
      const algorithm::Tolerance tolerance = bound(c) + algorithm::Tolerance{0.0, unit};
      EXPECT_EQ("", compare(rows_of(c, run, options()), want, width_of(c), tolerance)) << c.name;
    }
  }
}

TEST_P(CpuBackendTest, AgreesWithTheReferenceInF32UnderStrictNumerics) {
  for (const Format format : kEveryday) {
    for (Case c : {project_case(format, 512, true, 0.f), mlp_case(Activation::kSilu, true, format),
                   head_case(format, 0.f)}) {
      c.tolerance = algorithm::tolerance::mlp(512, 512);
      const RunOptions run{.schedule = one_prefill(kTokens)};
      const std::vector<float> want = run_case(*reference::make_backend(), c, run).rows;
      const std::vector<float> got = rows_of(c, run, options(1, Numerics::kStrict));
      EXPECT_EQ("", compare(got, want, width_of(c), c.tolerance)) << c.name;
    }
  }
}

TEST_P(CpuBackendTest, GivesTheSameBitsForFloatWeightsFastAndStrict) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16}) {
    const Case& c = decoder_in(format);
    for (const auto token_class : {state::TokenClass::kEntered, state::TokenClass::kGenerated}) {
      const bool entered = token_class == state::TokenClass::kEntered;
      if (entered && (kernels(GetParam()).whole_attention != nullptr || rounds())) continue;
      const RunOptions run{.schedule = {{Part{0, 20, token_class}}}};
      EXPECT_TRUE(
          same_bits(rows_of(c, run, options()), rows_of(c, run, options(1, Numerics::kStrict))));
    }
  }
}

TEST_P(CpuBackendTest, StaysWithinTheBoundOfTheReferenceOverAWholeDecoder) {
  for (const Case& c : decoder_cases()) {
    const RunOptions run{.schedule = one_prefill(20)};
    const std::vector<float> want = run_case(*reference::make_backend(), c, run).rows;
    EXPECT_EQ("", compare(rows_of(c, run, options()), want, width_of(c), bound(c))) << c.name;
  }
}

TEST_P(CpuBackendTest, GivesARowTheSameBitsHoweverItsTokensAreCut) {
  for (const Case& c : all_cases()) {
    if (c.program.whole_prompts) continue;
    const std::vector<float> whole = rows_of(c, {.schedule = one_prefill(kTokens)}, options());
    for (const auto& sizes :
         std::vector<std::vector<std::uint32_t>>{{1}, {17, 3, 2}, {13}, {8, 9}}) {
      EXPECT_TRUE(same_bits(whole, rows_of(c, {.schedule = chunks(kTokens, sizes)}, options())))
          << c.name << ", chunks of " << sizes[0];
    }
  }
}

TEST_P(CpuBackendTest, GivesARowTheSameBitsInAnyCompanyAndOnAnyPage) {
  for (const Case& c : all_cases()) {
    const std::vector<float> alone = rows_of(c, {.schedule = one_prefill(kTokens)}, options());
    for (const std::uint32_t page_size : {4u, 16u, 128u}) {
      const std::vector<std::uint32_t> sizes =
          c.program.whole_prompts ? std::vector{kTokens} : std::vector{5u, 1u, 9u};
      const RunOptions run{.schedule = in_company(kTokens, sizes), .page_size = page_size};
      EXPECT_TRUE(same_bits(alone, rows_of(c, run, options())))
          << c.name << ", pages of " << page_size;
    }
  }
}

TEST_P(CpuBackendTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  for (const Case& c : all_cases()) {
    const std::vector<std::uint32_t> sizes =
        c.program.whole_prompts ? std::vector{kTokens} : std::vector{20u, 1u};
    const RunOptions run{.schedule = chunks(kTokens, sizes), .format = RowFormat::kF16};
    const std::vector<float> one = rows_of(c, run, options(1));
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(same_bits(one, rows_of(c, run, options(threads)))) << c.name << ", " << threads;
    }
  }
}

TEST_P(CpuBackendTest, AttendsTheSameOverManyPieces) {
  // 200 positions are four pieces of 64; the window's first piece is partial.
  for (const std::uint32_t window : {0u, 100u}) {
    GqaSpec spec = gqa(4, 2, 32, 32);
    spec.window = window;
    const Case c = attend_case(spec, "long");
    RunOptions run{.schedule = chunks(200, {100}), .format = RowFormat::kF16};
    const std::vector<float> want = run_case(*reference::make_backend(), c, run).rows;
    const std::vector<float> whole = rows_of(c, run, options());
    EXPECT_EQ("", compare(whole, want, width_of(c), bound(c) + algorithm::Tolerance{0, 0x1p-11}));
    run.schedule = in_company(200, {1, 7, 40});
    run.page_size = 8;
    EXPECT_TRUE(same_bits(whole, rows_of(c, run, options(2)))) << window;
  }
}

TEST_P(CpuBackendTest, ReadsRowsWhereTheyLieWithTheBitsOfDecodedOnes) {
  // Pages of 64 hold whole pieces, of 8 they do not. One, two and eight query heads a KV head.
  for (const std::uint32_t query_heads : {2u, 4u, 16u}) {
    const Case c = attend_case(gqa(query_heads, 2, 32, 32), "in place");
    for (const RowFormat format : {RowFormat::kF16, RowFormat::kBF16}) {
      const auto paged = [&](std::uint32_t page_size, std::vector<std::uint32_t> sizes) {
        RunOptions run{.schedule = chunks(130, {sizes[0], 9}), .format = format};
        run.page_size = page_size;
        run.max_rows = 130;
        for (std::uint32_t done = 0, i = 0; done < 30; done += sizes[i++ % sizes.size()]) {
          run.schedule.push_back({Part{0, std::min(sizes[i % sizes.size()], 30 - done),
                                       state::TokenClass::kGenerated}});
        }
        return run;
      };
      const double unit = format == RowFormat::kF16 ? 0x1p-11 : 0x1p-8;
      const std::vector<float> want = rows_of(c, paged(8, {1}), options());
      EXPECT_TRUE(same_bits(want, rows_of(c, paged(64, {1}), options(2)))) << query_heads;
      EXPECT_TRUE(same_bits(want, rows_of(c, paged(64, {5, 2}), options()))) << query_heads;
      const std::vector<float> exact = run_case(*reference::make_backend(), c, paged(8, {1})).rows;
      EXPECT_EQ("", compare(want, exact, width_of(c), bound(c) + algorithm::Tolerance{0, unit}));
    }
  }
}

TEST_P(CpuBackendTest, GivesAListOfAllRowsTheBitsOfTheRange) {
  for (const auto& [range, list] : range_and_list_cases()) {
    const RunOptions run{.schedule = one_prefill(200), .max_rows = 200};
    const std::vector<float> want = rows_of(range, run, options());
    EXPECT_TRUE(same_bits(want, rows_of(list, run, options(2)))) << list.name;
    const RunOptions cut{.schedule = chunks(200, {7, 90, 1}), .page_size = 8, .max_rows = 200};
    EXPECT_TRUE(same_bits(want, rows_of(list, cut, options()))) << list.name;
  }
}

TEST_P(CpuBackendTest, AgreesWithTheReferenceOverManyPieces) {
  // Selections, pools and entries of a longer text: 150 positions, several pieces of 64.
  for (const Case& c : backend::conformance::attention_family_cases()) {
    const RunOptions run{.schedule = one_prefill(150), .max_rows = 150};
    const std::vector<float> want = run_case(*reference::make_backend(), c, run).rows;
    const std::vector<float> got = rows_of(c, run, options());
    EXPECT_EQ("", compare(got, want, width_of(c), c.tolerance + attention_bound(c))) << c.name;
    const RunOptions cut{.schedule = chunks(150, {66, 1, 3}), .page_size = 8, .max_rows = 150};
    EXPECT_TRUE(same_bits(got, rows_of(c, cut, options()))) << c.name;
  }
}

TEST_P(CpuBackendTest, StaysFiniteWithLargeActivations) {
  for (const Format format : one_format_a_layout()) {
    CaseBuilder b("large", 21);
    const auto in = b.embed(512, 1e4f);
    const auto out = b.project(in, 100, format);
    const Case c = b.finish(out, {});
    for (const std::uint32_t rows : {1u, 2u, 8u, 33u, 120u}) {
      for (const float y : rows_of(c, {.schedule = one_prefill(rows)}, options())) {
        ASSERT_TRUE(std::isfinite(y)) << weights::traits(format).name << " " << rows;
      }
    }
  }
}

/// Replaces one row of a site by a value.
class Poison final : public backend::Observer {
 public:
  Poison(std::string site, std::size_t row, float value)
      : site_(std::move(site)), row_(row), value_(value) {}
  bool wants(const backend::Program::Site& site) override { return site.name == site_; }
  void observe(std::int32_t, const backend::Program::Site& site, const backend::Step&,
               std::span<float> rows) override {
    rows[row_ * site.width] = value_;
  }

 private:
  std::string site_;
  std::size_t row_;
  float value_;
};

TEST_P(CpuBackendTest, FailsOnlyTheSegmentThatIsNotFinite) {
  const Case& c = decoder_in(Format::kQ8_0);
  const backend::conformance::Schedule three = {{Part{1, 4}, Part{0, 6}, Part{2, 3}}};
  const std::vector<float> clean = rows_of(c, {.schedule = three}, options());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Poison poison("t0", 2, bad);  // a row of sequence 1, at the embedding
    RunOptions run{.schedule = three};
    run.observers = {&poison};
    const Outcome outcome = run_case(*make_backend(options()), c, run);
    const auto& results = outcome.results.at(0);
    EXPECT_EQ(backend::SegmentStatus::kNonFinite, results[0].status);
    EXPECT_EQ(0, results[0].site);
    EXPECT_EQ(backend::SegmentStatus::kOk, results[1].status);
    EXPECT_EQ(backend::SegmentStatus::kOk, results[2].status);
    EXPECT_TRUE(same_bits(clean, outcome.rows));
  }
}

TEST_P(CpuBackendTest, KeepsWhatIsNotFiniteToItsSegmentInEveryOperation) {
  const backend::conformance::Schedule three = {{Part{1, 4}, Part{0, 6}, Part{2, 3}}};
  for (const Case& c : all_cases()) {
    const std::vector<float> clean = rows_of(c, {.schedule = three}, options());
    // Every embedding in turn, at a row of sequence 1.
    for (const backend::Operation& operation : c.program.operations) {
      const auto* const embed = std::get_if<backend::Embed>(&operation);
      if (embed == nullptr) continue;
      Poison poison(c.program.tensors[static_cast<std::size_t>(embed->out.id)].name, 2,
                    std::numeric_limits<float>::quiet_NaN());
      RunOptions run{.schedule = three};
      run.observers = {&poison};
      const Outcome outcome = run_case(*make_backend(options()), c, run);
      EXPECT_EQ(backend::SegmentStatus::kOk, outcome.results.at(0)[1].status) << c.name;
      EXPECT_EQ(backend::SegmentStatus::kOk, outcome.results.at(0)[2].status) << c.name;
      EXPECT_TRUE(same_bits(clean, outcome.rows)) << c.name;
    }
  }
}

TEST_P(CpuBackendTest, FailsTheSegmentsThatARecurrenceOrARouterCannotGoOnWith) {
  std::vector<Case> cases = backend::conformance::recurrent_family_cases();
  for (Case& c : backend::conformance::expert_family_cases()) cases.push_back(std::move(c));
  for (const Case& c : cases) {
    Poison poison("t0", 2, std::numeric_limits<float>::quiet_NaN());
    RunOptions run{.schedule = {{Part{1, 4}, Part{0, 6}}}};
    run.observers = {&poison};
    const Outcome outcome = run_case(*make_backend(options()), c, run);
    EXPECT_EQ(backend::SegmentStatus::kNonFinite, outcome.results.at(0)[0].status) << c.name;
  }
}

TEST_P(CpuBackendTest, FailsASegmentWhoseListIsNoList) {
  for (const Case& c : backend::conformance::attention_family_cases()) {
    for (const backend::Operation& operation : c.program.operations) {
      const auto* const select = std::get_if<backend::Select>(&operation);
      if (select == nullptr || select->out.id + 1 == std::int32_t(c.program.tensors.size()))
        continue;
      const std::string site = c.program.tensors[static_cast<std::size_t>(select->out.id)].name;
      for (const float length : {-1.f, 1e9f, std::numeric_limits<float>::quiet_NaN()}) {
        Poison poison(site, 2, length);
        RunOptions run{.schedule = {{Part{1, 4}, Part{0, 6}}}};
        run.observers = {&poison};
        const Outcome outcome = run_case(*make_backend(options()), c, run);
        EXPECT_EQ(backend::SegmentStatus::kNonFinite, outcome.results.at(0)[0].status) << c.name;
        EXPECT_EQ(select->out.id, outcome.results.at(0)[0].site) << c.name;
        EXPECT_EQ(backend::SegmentStatus::kOk, outcome.results.at(0)[1].status) << c.name;
      }
    }
  }
}

TEST_P(CpuBackendTest, FailsASegmentWhoseRowDoesNotFitTheStateFormat) {
  const Case c = attend_case(gqa(2, 1, 16, 16), "store");
  Poison poison("t2", 1, 1e6f);  // a key beyond f16
  RunOptions run{.schedule = {{Part{1, 4}, Part{0, 6}}}, .format = RowFormat::kF16};
  run.observers = {&poison};
  const Outcome outcome = run_case(*make_backend(options()), c, run);
  EXPECT_EQ(backend::SegmentStatus::kNonFinite, outcome.results.at(0)[0].status);
  EXPECT_EQ(2, outcome.results.at(0)[0].site);
  EXPECT_EQ(backend::SegmentStatus::kOk, outcome.results.at(0)[1].status);
}

TEST_P(CpuBackendTest, FailsASegmentWhoseLogitsAreNotFinite) {
  const Case c = head_case(Format::kQ8_0, 0.f);
  Poison poison("t0", 5, std::numeric_limits<float>::quiet_NaN());
  RunOptions run{.schedule = {{Part{1, 4}, Part{0, 6}}}};
  run.observers = {&poison};
  const Outcome outcome = run_case(*make_backend(options()), c, run);
  EXPECT_EQ(backend::SegmentStatus::kOk, outcome.results.at(0)[0].status);
  EXPECT_EQ(backend::SegmentStatus::kNonFinite, outcome.results.at(0)[1].status);
}

TEST_P(CpuBackendTest, LetsAnObserverReplaceTheRowsThatAProductReads) {
  const Case c = project_case(Format::kQ8_0, 256, false, 0.f);
  // Setting an element to what it is not must show, though the row's int8 form is shared.
  Poison change("t0", 3, 40.f);
  RunOptions run{.schedule = one_prefill(8)};
  const std::vector<float> plain = rows_of(c, run, options());
  run.observers = {&change};
  const std::vector<float> want = run_case(*reference::make_backend(), c, run).rows;
  const std::vector<float> got = rows_of(c, run, options());
  EXPECT_EQ("", compare(got, want, width_of(c), c.tolerance));
  const std::size_t width = width_of(c);
  EXPECT_EQ(0, std::memcmp(got.data(), plain.data(), 3 * width * sizeof(float)));
  EXPECT_NE(0,
            std::memcmp(got.data() + 3 * width, plain.data() + 3 * width, width * sizeof(float)));
}

/// Looks at every site.
class LookEverywhere final : public backend::Observer {
 public:
  bool wants(const backend::Program::Site&) override { return true; }
  void observe(std::int32_t, const backend::Program::Site&, const backend::Step&,
               std::span<float>) override {}
};

TEST_P(CpuBackendTest, GivesTheSameBitsWhereOperationsGoTogetherAndWhereObserversPartThem) {
  for (const Format format : {Format::kF32, Format::kQ8_0}) {
    const Case& c = decoder_in(format);
    LookEverywhere observer;
    RunOptions run{.schedule = chunks(kTokens, {30, 1, 9})};
    const std::vector<float> together = rows_of(c, run, options(2));
    run.observers = {&observer};
    EXPECT_EQ(together, rows_of(c, run, options(2)));
  }
}

TEST_P(CpuBackendTest, GivesTheSameBitsWhereThreadsShareALongHistory) {
  GqaSpec window = gqa(4, 2, 16, 16), sinks = gqa(4, 1, 20, 12);
  window.window = 530;
  sinks.sinks = true;
  for (const GqaSpec& spec : {gqa(2, 1, 16, 16), window, sinks}) {
    const Case c = attend_case(spec, "long history");
    const std::vector<float> whole = rows_of(c, {.schedule = chunks(720, {128})}, options(1));
    RunOptions run{.schedule = chunks(720, {128, 128, 128, 128, 118, 1, 1, 5, 1, 20, 2, 60})};
    for (const int threads : {1, 2, 3}) EXPECT_EQ(whole, rows_of(c, run, options(threads)));
  }
}

/// Counts allocations from the first site of a step to the last one.
class CountAllocations final : public backend::Observer {
 public:
  explicit CountAllocations(std::string last) : last_(std::move(last)) {}
  ~CountAllocations() override { counting_allocations = false; }
  bool wants(const backend::Program::Site&) override { return true; }
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step&,
               std::span<float>) override {
    if (tensor == 0) counting_allocations = true;
    if (site.name == last_) counting_allocations = false;
  }

 private:
  std::string last_;
};

TEST_P(CpuBackendTest, AllocatesNothingWhileAStepRuns) {
  for (const Format format : {Format::kF32, Format::kQ4_K}) {
    const Case& c = decoder_in(format);
    CountAllocations count(c.program.tensors[static_cast<std::size_t>(c.program.hidden.id)].name);
    RunOptions run{.schedule = chunks(40, {20, 1})};
    run.observers = {&count};
    counted_allocations = 0;
    rows_of(c, run, options(2));
    EXPECT_EQ(0u, counted_allocations.load());
  }
}

TEST_P(CpuBackendTest, AllocatesNothingInSixtyFourDecodeRounds) {
  for (const Format format : {Format::kF32, Format::kQ4_K}) {
    RunOptions run{.schedule = chunks(84, {20})};
    run.schedule.resize(1);
    for (int round = 0; round < 64; ++round) {
      run.schedule.push_back({Part{0, 1, state::TokenClass::kGenerated}});
    }
    run.around = [](bool runs) { counting_allocations = runs; };
    counted_allocations = 0;
    rows_of(decoder_in(format), run, options(2));
    EXPECT_EQ(0u, counted_allocations.load());
  }
}

TEST_P(CpuBackendTest, AllocatesNothingInAnyOperation) {
  for (const Case& c : operation_cases()) {
    if (c.site == "logits") continue;  // the decoder's test above has the head
    CountAllocations count(c.site);
    RunOptions run{.schedule = one_prefill(kTokens)};
    run.observers = {&count};
    counted_allocations = 0;
    rows_of(c, run, options(2));
    EXPECT_EQ(0u, counted_allocations.load()) << c.name;
  }
}

TEST_P(CpuBackendTest, RunsEveryOperationItself) {
  for (const Case& c : operation_cases()) {
    for (const backend::Placement& placement :
         run_case(*make_backend(options()), c, {.schedule = one_prefill(1)}).placements) {
      EXPECT_EQ(0u,
                placement.implementation.find("cpu " + std::string(base::to_string(GetParam()))))
          << placement.implementation;
    }
  }
}

TEST(CpuBackend, NamesKernelsFormatsAndThreads) {
  const auto backend = make_backend({.threads = 3, .isa = base::Isa::kScalar});
  EXPECT_EQ("cpu", backend->name());
  EXPECT_EQ("cpu: scalar kernels, 3 threads, as asked", backend->description());
  const Outcome outcome = run_case(*backend, project_case(Format::kQ8_0, 256, false, 0.f),
                                   {.schedule = one_prefill(1)});
  EXPECT_EQ("cpu scalar f32 x f32, q8_0 x int8", outcome.placements.at(1).implementation);
  EXPECT_EQ("F32, Q8_0", outcome.placements.at(1).format);
}

TEST(CpuBackend, RefusesWhatTheMachineCannotDo) {
  EXPECT_THROW(make_backend({.threads = -1}), Error);
#if defined(__x86_64__)
  EXPECT_THROW(make_backend({.isa = base::Isa::kNeon}), Error);
#endif
}

INSTANTIATE_TEST_SUITE_P(Isa, CpuBackendTest, ::testing::ValuesIn(base::tested_isas()),
                         [](const ::testing::TestParamInfo<base::Isa>& isa) {
                           return std::string(base::to_string(isa.param));
                         });

}  // namespace
}  // namespace lemma::cpu
