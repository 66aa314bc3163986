// SPDX-License-Identifier: Apache-2.0
// An encoder on both backends: its rows look ahead, so a prompt comes in one step, and it ends in
// hidden states, which are compared with those of an independent engine.
#include <algorithm>
#include <cstdio>
#include <string>

#include "golden_models.hpp"
#include "lemma/error.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

/// Keeps the rows of the last hidden state.
class HiddenRows final : public backend::Observer {
 public:
  bool wants(const backend::Program::Site& site) override { return site.name == site_name; }
  void observe(std::int32_t, const backend::Program::Site&, const backend::Step&,
               std::span<float> found) override {
    rows.insert(rows.end(), found.begin(), found.end());
  }
  std::string site_name;
  std::vector<float> rows;
};

class Encoder : public ::testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(folder, "goldens/bert");
    golden_ = read_golden(folder);
  }

  void open(int threads) {
    runtime::LoadOptions load;
    load.backend = GetParam();
    load.threads = threads;
    model_ = runtime::LoadedModel::open(golden_.model, load);
    const backend::Program& program = model_->program();
    hidden_.site_name = program.tensors[static_cast<std::size_t>(program.hidden.id)].name;
    hidden_.rows.clear();
    backend::Observer* const observer = &hidden_;
    runtime::StateOptions state;
    state.format = algorithm::RowFormat::kF32;
    state.page_size = 16;
    state.sequences = 2;
    state.observers = {&observer, 1};
    space_ = std::make_unique<runtime::StateSpace>(*model_, state);
  }

  /// Hidden states [T, D].
  std::vector<float> encode(int threads = 1, const runtime::Chunking& chunking = {}) {
    open(threads);
    state::Sequence sequence(space_->pool());
    runtime::evaluate(*model_, *space_, sequence, golden_.tokens, chunking, {});
    return hidden_.rows;
  }

  std::size_t width() const { return golden_.logits.size() / golden_.tokens.size(); }

  Golden golden_;
  HiddenRows hidden_;
  std::unique_ptr<runtime::LoadedModel> model_;
  std::unique_ptr<runtime::StateSpace> space_;
};

INSTANTIATE_TEST_SUITE_P(Bert, Encoder,
                         ::testing::Values(BackendKind::kReference, BackendKind::kCpu),
                         [](const auto& test) {
                           return test.param == BackendKind::kCpu ? "cpu" : "reference";
                         });

TEST_P(Encoder, AgreesWithAnIndependentEngine) {
  const double difference = largest_difference(golden_.logits, encode());
  std::printf("[ measured ] %-28s %-9s max |difference| %.2e of %.0e allowed\n", "bert",
              GetParam() == BackendKind::kCpu ? "cpu" : "reference", difference, golden_.tolerance);
  EXPECT_LE(difference, golden_.tolerance);
}

TEST_P(Encoder, HasTheSameBitsOnAnyNumberOfThreads) {
  EXPECT_EQ(bit_difference(encode(1), encode(3), width()), "");
}

// Two prompts in one step: neither sees the other's tokens.
TEST_P(Encoder, HasTheSameBitsBesideOthers) {
  const std::vector<float> alone = encode();
  open(2);
  const std::span<const std::int32_t> tokens = golden_.tokens;
  state::Sequence other(space_->pool()), sequence(space_->pool());
  using Part = runtime::StepPart;
  const Part parts[] = {
      {&other, tokens.subspan(5, 9), state::TokenClass::kEntered, Part::Logits::kNone},
      {&sequence, tokens, state::TokenClass::kEntered, Part::Logits::kNone}};
  runtime::StepRunner runner(*model_, *space_);
  runner.run(parts);
  runner.check(0);
  runner.check(1);
  ASSERT_EQ(hidden_.rows.size(), alone.size() + 9 * width());
  EXPECT_EQ(bit_difference(alone, std::span(hidden_.rows).subspan(9 * width()), width()), "");
}

TEST_P(Encoder, RefusesAPromptInPieces) {
  EXPECT_THROW(encode(1, {.cuts = {20}}), Error);
}

TEST_P(Encoder, HasNoLogits) {
  open(1);
  state::Sequence sequence(space_->pool());
  const auto sink = [](std::uint32_t, std::span<const float>) {};
  EXPECT_THROW(runtime::evaluate(*model_, *space_, sequence, golden_.tokens, {}, sink), Error);
}

}  // namespace
}  // namespace lemma::test
