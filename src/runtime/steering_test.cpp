// SPDX-License-Identifier: Apache-2.0
#include "runtime/steering.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>

#include "runtime/engine_core.hpp"
#include "test_data.hpp"
#include "weights/safetensors/writer.hpp"

namespace lemma::runtime {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGolden = "goldens/llama-gqa/model.gguf";
using Vectors = std::map<std::string, std::vector<float>>;

/// A file of vectors that lives as long as this.
class VectorFile {
 public:
  explicit VectorFile(const Vectors& vectors)
      : path_(std::filesystem::temp_directory_path() /
              ("lemma-steer-" + std::to_string(::getpid()) + ".safetensors")) {
    std::vector<weights::SafetensorsTensor> tensors;
    for (const auto& [name, vector] : vectors) tensors.push_back({name, "F32", {vector.size()}});
    weights::SafetensorsWriter writer(path_, tensors, {});
    std::size_t index = 0;
    for (const auto& [name, vector] : vectors)
      writer.write(index++, 0, std::as_bytes(std::span(vector)));
    writer.publish();
  }
  ~VectorFile() { std::filesystem::remove(path_); }
  VectorFile(const VectorFile&) = delete;
  VectorFile& operator=(const VectorFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Keeps the rows of all sites by name.
class Recorder final : public backend::Observer {
 public:
  bool wants(const backend::Program::Site&) override { return true; }
  void observe(std::int32_t, const backend::Program::Site& site, const backend::Step&,
               std::span<float> written) override {
    rows[site.name].assign(written.begin(), written.end());
  }
  std::map<std::string, std::vector<float>> rows;
};

struct Seen {
  std::map<std::string, std::vector<float>> rows;
  std::vector<float> logits;
};

Seen run(const std::filesystem::path& path, BackendKind backend,
         const std::optional<Steering>& steering) {
  Recorder recorder;
  backend::Observer* const observers[] = {&recorder};
  EngineOptions options;
  options.backend = backend;
  options.threads = 1;
  options.kv = KvFormat::kF32;
  options.context = 64;
  options.max_sequences = 1;
  options.steering = steering;
  const auto engine = EngineAccess::open(path, options, {.observers = observers});
  Session session = engine->session();
  const std::vector<TokenId> tokens = {1, 403, 407, 261, 378};
  session.sync(tokens);
  return {recorder.rows, {session.logits().begin(), session.logits().end()}};
}

std::uint32_t width_of(const std::filesystem::path& path) {
  EngineOptions options;
  options.context = 64;
  options.max_sequences = 1;
  return Engine::open(path, options)->info().width;
}

std::vector<float> some_vector(std::uint32_t width) {
  std::vector<float> vector(width);
  for (std::uint32_t i = 0; i < width; ++i) vector[i] = float(int(i * 7 % 11) - 5) / 8.f;
  return vector;
}

std::string error_of(const std::filesystem::path& path, const Steering& steering) {
  EngineOptions options;
  options.context = 64;
  options.max_sequences = 1;
  options.steering = steering;
  try {
    Engine::open(path, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class SteeringTest : public ::testing::TestWithParam<BackendKind> {};
INSTANTIATE_TEST_SUITE_P(Backends, SteeringTest,
                         ::testing::Values(BackendKind::kReference, BackendKind::kCpu),
                         [](const auto& backend) {
                           return backend.param == BackendKind::kCpu ? "cpu" : "reference";
                         });

TEST_P(SteeringTest, AddsExactlyFactorTimesVectorToTheRowsOfItsSite) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const std::vector<float> vector = some_vector(width_of(path));
  const Seen plain = run(path, GetParam(), std::nullopt);
  const std::vector<std::tuple<std::string, Steering>> cases = {
      {"layers.1.ffn.output", {.file = {}, .ffn = 2.5f, .attention = {}}},
      {"layers.1.attention.output", {.file = {}, .ffn = {}, .attention = -1.5f}}};
  for (auto [site, steering] : cases) {
    const VectorFile file({{site, vector}});
    steering.file = file.path();
    const Seen steered = run(path, GetParam(), steering);
    std::vector<float> expected = plain.rows.at(site);
    const float factor = steering.ffn ? *steering.ffn : *steering.attention;
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] += factor * vector[i % vector.size()];
    EXPECT_EQ(steered.rows.at(site), expected) << site;
    EXPECT_EQ(steered.rows.at("layers.0.ffn.output"), plain.rows.at("layers.0.ffn.output"));
    EXPECT_NE(steered.logits, plain.logits);
  }
}

TEST_P(SteeringTest, ChangesNoBitWithFactorsOfZero) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const VectorFile file({{"layers.1", some_vector(width_of(path))}});
  const Seen plain = run(path, GetParam(), std::nullopt);
  const Seen steered =
      run(path, GetParam(), Steering{.file = file.path(), .ffn = 0.f, .attention = 0.f});
  EXPECT_EQ(steered.rows, plain.rows);
  EXPECT_EQ(steered.logits, plain.logits);
}

TEST(Steering, OfALayerReachesTheBranchesOfTheKindThatHasAFactor) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const VectorFile file({{"layers.0", some_vector(width_of(path))}});
  const auto site = [](const Seen& seen, const char* name) { return seen.rows.at(name); };
  const char *ffn = "layers.0.ffn.output", *attention = "layers.0.attention.output";
  const Seen plain = run(path, BackendKind::kCpu, std::nullopt);
  const Seen only_ffn =
      run(path, BackendKind::kCpu, Steering{.file = file.path(), .ffn = 1.f, .attention = {}});
  EXPECT_EQ(site(only_ffn, attention), site(plain, attention));
  EXPECT_NE(site(only_ffn, ffn), site(plain, ffn));
  // Without factors both kinds are steered by the vectors as they are.
  const Seen both = run(path, BackendKind::kCpu, Steering{file.path(), {}, {}});
  const Seen ones = run(path, BackendKind::kCpu, Steering{file.path(), 1.f, 1.f});
  EXPECT_NE(site(both, attention), site(plain, attention));
  EXPECT_EQ(both.rows, ones.rows);
}

TEST(Steering, RefusesWhatDoesNotFitTheModel) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const std::uint32_t width = width_of(path);
  const auto with = [&](const Vectors& vectors, std::optional<float> ffn = {},
                        std::optional<float> attention = {}) {
    const VectorFile file(vectors);
    return error_of(path, {file.path(), ffn, attention});
  };
  const std::vector<float> fits = some_vector(width);
  for (const char* name : {"layers.99.ffn.output", "layers.99", "embedding", "layers.0.ffn.nothing",
                           "layers.0.ffn", "layers.", "layers.0x"})
    EXPECT_THAT(with({{name, fits}}), HasSubstr("'" + std::string(name) + "' is neither"));
  EXPECT_THAT(with({{"layers.0.ffn.output", some_vector(width + 1)}}),
              HasSubstr("expected " + std::to_string(width) + " numbers"));
  std::vector<float> infinite = fits;
  infinite[1] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(with({{"layers.0.ffn.output", infinite}}), HasSubstr("holds inf"));
  EXPECT_THAT(with({{"layers.0.ffn.output", fits}}, std::numeric_limits<float>::quiet_NaN()),
              HasSubstr("finite factors"));
  EXPECT_THAT(with({{"layers.0.ffn.output", std::vector<float>(width, 8.f)}}, 3e38f, {}),
              HasSubstr("not finite at"));
  EXPECT_THAT(with({}), HasSubstr("holds no steering vector"));
}

TEST(Steering, RefusesFactorsWithoutEffect) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  EXPECT_THAT(error_of(path, {.file = {}, .ffn = 1.f, .attention = {}}),
              HasSubstr("no effect without a file"));
  const VectorFile file({{"layers.0.ffn.output", some_vector(width_of(path))}});
  EXPECT_THAT(error_of(path, {.file = file.path(), .ffn = 1.f, .attention = 2.f}),
              HasSubstr("attention factor has no effect"));
}

TEST(Steering, NeverTouchesWholeNumbersThatChoose) {
  LEMMA_TEST_DATA_OR_SKIP(path, "goldens/qwen3moe/model.gguf");
  const VectorFile file({{"layers.0.ffn.experts_chosen", {1.f, 1.f}}});
  EXPECT_THAT(error_of(path, {file.path(), {}, {}}), HasSubstr("experts_chosen' is neither"));
}

TEST(Branches, AreWhatTheSitesAddToTheStream) {
  backend::Program program;
  for (const char* name :
       {"embedding", "layers.0.attention.norm", "layers.0.attention.output",
        "layers.0.attention.stream", "layers.0.ffn.experts", "layers.0.ffn.sum",
        "layers.0.ffn.branch_norm", "layers.0.ffn.stream", "layers.0.ffn2.output",
        "layers.0.ffn2.stream", "layers.0.ffn2.sum_norm", "layers.10.ffn.output", "final_norm"})
    program.tensor(name, 4);
  EXPECT_EQ(branches(program), (std::vector<std::int32_t>{2, 6, 8, 11}));
}

}  // namespace
}  // namespace lemma::runtime
