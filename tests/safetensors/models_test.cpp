// SPDX-License-Identifier: Apache-2.0
// Tiny checkpoints as transformers saves them, opened as they are, against what transformers
// answers: the whole way from config.json to logits, on both backends. Then what these folders do
// not have: blocks that draft, under the names of published files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "model/arch/arch.hpp"
#include "model_runs.hpp"
#include "test_data.hpp"
#include "weights/checkpoint.hpp"
#include "weights/safetensors/folder.hpp"
#include "weights/safetensors/writer.hpp"
#include "weights/view.hpp"

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
  // Weights are BF16, whose products may round what they read unless asked not to.
  const RunOptions options{.backend = backend, .numerics = NumericsMode::kStrict};
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

// The architectures that no folder leads to, each with its reason. There are none.
const std::vector<std::string> kWithoutFolder = {};

TEST(Folders, LeadToEveryArchitecture) {
  std::vector<std::string> reached = kWithoutFolder;
  for (const std::string& name : saved_models()) {
    const auto checkpoint = weights::open_checkpoint(kData / name);
    reached.push_back(checkpoint->metadata().string("general.architecture"));
  }
  for (const std::string_view architecture : model::known_architectures())
    EXPECT_THAT(reached, ::testing::Contains(architecture)) << architecture;
}

// Every number of every config.json at values that divide by nothing, overflow a product or are
// odd: an error or a plan.
TEST(Folders, WithAnyNumberAreAModelOrAnError) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lemma-numbers-" + std::to_string(::getpid()));
  std::size_t planned = 0, refused = 0;
  const auto attempt = [&](const nlohmann::json& config) {
    std::ofstream(path / "config.json") << config;
    try {
      const auto checkpoint = weights::open_checkpoint(path);
      model::make_plan(*checkpoint, {});
      ++planned;
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::kInternal) << error.what();
      ++refused;
    }
  };
  for (const std::string& name : saved_models()) {
    SCOPED_TRACE(name);
    if (!std::filesystem::exists(kData / name / "model.safetensors")) continue;  // shards
    std::filesystem::create_directories(path);
    std::filesystem::create_symlink(kData / name / "model.safetensors", path / "model.safetensors");
    std::ifstream in(kData / name / "config.json");
    const nlohmann::json sound = nlohmann::json::parse(in);
    const nlohmann::json flat = sound.flatten();
    for (const auto& [key, value] : flat.items()) {
      if (!value.is_number()) continue;
      for (const std::int64_t number :
           {std::int64_t{0}, std::int64_t{3}, std::int64_t{0xffffffff}}) {
        nlohmann::json config = sound;
        config[nlohmann::json::json_pointer(key)] = number;
        attempt(config);
      }
    }
    std::filesystem::remove_all(path);
  }
  EXPECT_GT(planned, 500u);
  EXPECT_GT(refused, 1000u);
}

/// A copy of a saved folder with more tensors: those of the folder under other names, and new ones
/// of 0, 0.01, 0.02, ...
class Extended {
 public:
  explicit Extended(const std::string& name) : saved_(kData / name) {
    path_ = std::filesystem::temp_directory_path() /
            ("lemma-extended-" + name + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
    std::filesystem::copy_file(kData / name / "config.json", path_ / "config.json",
                               std::filesystem::copy_options::overwrite_existing);
    for (const auto& [tensor, stored] : saved_.tensors()) add(tensor, stored);
  }
  ~Extended() { std::filesystem::remove_all(path_); }

  /// Tensors `from`* once more as `to`*.
  void copy(const std::string& from, const std::string& to) {
    for (const auto& [tensor, stored] : saved_.tensors())
      if (tensor.starts_with(from)) add(to + tensor.substr(from.size()), stored);
  }
  void add(const std::string& name, const std::vector<std::uint64_t>& shape) {
    std::size_t count = 1;
    for (const std::uint64_t n : shape) count *= n;
    std::vector<float>& values = made_.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = 0.01f * static_cast<float>(i);
    tensors_.push_back({name, "F32", shape});
    bytes_.push_back(std::as_bytes(std::span(values)));
  }
  std::unique_ptr<const weights::Checkpoint> open() {
    weights::SafetensorsWriter writer(path_ / "model.safetensors", tensors_, {});
    for (std::size_t i = 0; i < tensors_.size(); ++i) writer.write(i, 0, bytes_[i]);
    writer.publish();
    return weights::open_checkpoint(path_);
  }

 private:
  void add(const std::string& name, const weights::safetensors::Stored& stored) {
    tensors_.push_back({name, stored.dtype, stored.shape});
    bytes_.push_back(stored.bytes);
  }

  weights::safetensors::Folder saved_;
  std::filesystem::path path_;
  std::vector<weights::SafetensorsTensor> tensors_;
  std::vector<std::span<const std::byte>> bytes_;
  std::list<std::vector<float>> made_;
};

std::vector<float> values(const weights::Checkpoint& checkpoint, const std::string& name) {
  const weights::TensorInfo& tensor = checkpoint.at(name);
  return weights::to_f32(
      weights::bind(checkpoint, {name, weights::View::whole()}, 1, tensor.elements()));
}

TEST(FolderDrafts, OfQwenAreAModuleWithNormsAroundZero) {
  for (const char* name : {"qwen3_next", "qwen3_5", "qwen3_5_moe"}) {
    SCOPED_TRACE(name);
    Extended folder(name);
    const std::uint64_t width = std::string(name) == "qwen3_next" ? 32 : 16;
    folder.copy("model.layers.1.", "mtp.layers.0.");
    folder.add("mtp.fc.weight", {width, 2 * width});
    for (const char* norm : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"})
      folder.add(std::string("mtp.") + norm + ".weight", {width});
    const auto checkpoint = folder.open();
    const model::Plan plan = model::make_plan(*checkpoint, {});
    ASSERT_EQ(plan.drafts.size(), 1u);
    EXPECT_EQ(plan.layers.size(), 2u);
    EXPECT_FLOAT_EQ(values(*checkpoint, "blk.2.nextn.enorm.weight")[3], 1.03f);
    EXPECT_FLOAT_EQ(values(*checkpoint, "blk.2.nextn.shared_head_norm.weight")[3], 1.03f);
    EXPECT_EQ(values(*checkpoint, "blk.2.attn_norm.weight"),
              values(*checkpoint, "blk.1.attn_norm.weight"));
  }
}

TEST(FolderDrafts, OfDeepSeek4AreBlocksThatReadEveryStream) {
  Extended folder("deepseek_v4");
  folder.copy("model.layers.0.attn", "mtp.0.attn");
  folder.copy("model.layers.0.hc_", "mtp.0.hc_");
  folder.copy("model.layers.0.ffn_norm", "mtp.0.ffn_norm");
  folder.copy("model.layers.2.ffn.", "mtp.0.ffn.");
  for (const char* norm : {"enorm", "hnorm", "norm"})
    folder.add(std::string("mtp.0.") + norm + ".weight", {32});
  for (const char* half : {"e_proj", "h_proj"})
    folder.add(std::string("mtp.0.") + half + ".weight", {32, 32});
  folder.add("mtp.0.hc_head_fn", {3, 96});
  folder.add("mtp.0.hc_head_base", {3});
  folder.add("mtp.0.hc_head_scale", {1});
  const auto checkpoint = folder.open();
  const model::Plan plan = model::make_plan(*checkpoint, {});
  ASSERT_EQ(plan.drafts.size(), 1u);
  EXPECT_EQ(plan.drafts[0].reads, model::DraftBlock::Reads::kStream);
  EXPECT_EQ(plan.drafts[0].leave.fn.tensor, "blk.3.nextn.hc_head_fn.weight");
}

// No independent engine says how GLM 5.3 Flash drafts. Its block is left out, since the model
// itself does not pass it; a stray tensor of a layer that does not exist is still refused.
TEST(FolderDrafts, ThatNoPlanHasAreLeftOut) {
  Extended folder("glm5_next");
  folder.copy("model.language_model.layers.2.", "model.language_model.layers.3.");
  folder.add("model.language_model.layers.3.eh_proj.weight", {32, 64});
  EXPECT_TRUE(model::make_plan(*folder.open(), {}).drafts.empty());

  Extended stray("glm5_next");
  stray.add("model.language_model.layers.3.mlp.up_proj.weight", {32, 64});
  EXPECT_THROW(stray.open(), Error);
}

}  // namespace
}  // namespace lemma::test
