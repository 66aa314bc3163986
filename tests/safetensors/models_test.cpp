// SPDX-License-Identifier: Apache-2.0
// Tiny checkpoints as transformers saves them, opened as they are, against what transformers
// answers: the whole way from config.json to logits, on both backends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "model/arch/arch.hpp"
#include "model_runs.hpp"
#include "test_data.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::test {
namespace {

// f32 in two schools: orders of sums differ. Errors grow to at most a few 1e-6 of the largest logit
// in two layers; a wrong row, norm or angle is off by at least 1e-2 of it.
constexpr double kTolerance = 2e-5;

const std::filesystem::path kData = source_dir() / "tests/safetensors/data";

std::vector<std::string> saved_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::vector<std::int32_t> tokens_of(const std::string& name) {
  std::ifstream in(kData / name / "tokens.json");
  return nlohmann::json::parse(in).get<std::vector<std::int32_t>>();
}

std::vector<float> answer_of(const std::string& name) {
  std::ifstream in(kData / name / "answer.f32", std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

/// Keeps the rows of the last hidden state, in which an encoder ends.
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

std::vector<float> hidden_states(std::unique_ptr<runtime::LoadedModel> model,
                                 std::span<const std::int32_t> tokens) {
  HiddenRows hidden;
  const backend::Program& program = model->program();
  hidden.site_name = program.tensors[static_cast<std::size_t>(program.hidden.id)].name;
  backend::Observer* const observer = &hidden;
  runtime::StateOptions state;
  state.format = algorithm::RowFormat::kF32;
  state.observers = {&observer, 1};
  runtime::StateSpace space(*model, state);
  state::Sequence sequence(space.pool());
  runtime::evaluate(*model, space, sequence, tokens, {}, {});
  return hidden.rows;
}

std::unique_ptr<runtime::LoadedModel> open(const std::string& name, BackendKind backend) {
  auto checkpoint = weights::open_checkpoint(kData / name);
  model::Plan plan = model::make_plan(*checkpoint, {});
  const RunOptions options{.backend = backend};
  return runtime::LoadedModel::assemble(std::move(checkpoint), std::move(plan),
                                        load_options(options));
}

class SavedModel : public ::testing::TestWithParam<std::tuple<std::string, BackendKind>> {};

TEST_P(SavedModel, AgreesWithTransformers) {
  const auto& [name, backend] = GetParam();
  const std::vector<std::int32_t> tokens = tokens_of(name);
  auto model = open(name, backend);
  const bool encoder = !model->plan().head.output;
  std::vector<float> found;
  if (encoder) {
    found = hidden_states(std::move(model), tokens);
  } else {
    ModelUnderTest run = under_test(std::move(model), {.backend = backend});
    found = evaluate(run, tokens);
  }
  const std::vector<float> expected = answer_of(name);
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::fabs(value));
  const double error = largest_difference(expected, found) / largest;
  std::printf("[ measured ] %-14s %-9s max |difference| %.1e of the largest, %.3g\n", name.c_str(),
              backend == BackendKind::kCpu ? "cpu" : "reference", error, largest);
  EXPECT_LE(error, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Models, SavedModel,
                         ::testing::Combine(::testing::ValuesIn(saved_models()),
                                            ::testing::Values(BackendKind::kReference,
                                                              BackendKind::kCpu)),
                         [](const auto& test) {
                           return std::get<0>(test.param) +
                                  (std::get<1>(test.param) == BackendKind::kCpu ? "_cpu"
                                                                                : "_reference");
                         });

}  // namespace
}  // namespace lemma::test
