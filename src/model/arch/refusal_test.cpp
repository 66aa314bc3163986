// SPDX-License-Identifier: Apache-2.0
// What lemma has no words for is refused by name: architectures of other families (state spaces and
// their hybrids), and any key or tensor that a plan would ignore although it may change the result.
// The golden models of this repository stand for files that are otherwise understood.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lemma/error.hpp"
#include "model/arch/arch.hpp"
#include "model/arch/tiny_checkpoint.hpp"
#include "test_data.hpp"

namespace lemma::model::arch {
namespace {

/// The kind and message of the error with which planning fails, "planned" where it does not.
std::string failure(const TinyCheckpoint& checkpoint) {
  try {
    make_plan(checkpoint, {});
    return "planned";
  } catch (const Error& error) {
    return (error.kind() == ErrorKind::kUnsupported ? "unsupported: " : "other: ") +
           std::string(error.what());
  }
}

class OtherFamily : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, OtherFamily,
                         ::testing::Values("nemotron_h", "nemotron_h_moe", "mamba", "mamba2",
                                           "jamba", "falcon-h1", "granitehybrid", "plamo2", "lfm2",
                                           "rwkv7"),
                         [](const auto& name) {
                           std::string word = name.param;
                           for (char& c : word)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return word;
                         });

TEST_P(OtherFamily, IsRefusedByName) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  tiny.set("general.architecture", std::string(GetParam()));
  const std::string message = failure(tiny);
  EXPECT_TRUE(message.starts_with("unsupported: ")) << message;
  EXPECT_NE(message.find("'" + std::string(GetParam()) + "'"), std::string::npos) << message;
}

std::vector<std::filesystem::path> own_goldens() {
  std::vector<std::filesystem::path> models;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_dir() / "tests" / "goldens"))
    if (std::filesystem::exists(entry.path() / "model.gguf"))
      models.push_back(entry.path() / "model.gguf");
  return models;
}

/// A checkpoint's copy that can be altered, and the architecture's own prefix of keys.
struct Altered {
  explicit Altered(const std::filesystem::path& path)
      : file(weights::open_checkpoint(path)),
        copy(*file),
        architecture(copy.metadata().string("general.architecture")) {}
  std::unique_ptr<const weights::Checkpoint> file;
  TinyCheckpoint copy;
  std::string architecture;
};

TEST(UnknownWords, AreRefusedInAFileOfEveryFamily) {
  const auto models = own_goldens();
  EXPECT_GE(models.size(), 17u);
  for (const std::filesystem::path& model : models) {
    SCOPED_TRACE(model.parent_path().filename().string());
    ASSERT_EQ(failure(Altered(model).copy), "planned");

    Altered key(model);
    key.copy.set(key.architecture + ".attention.unheard_of", std::int64_t{1});
    std::string message = failure(key.copy);
    EXPECT_TRUE(message.starts_with("unsupported: ")) << message;
    EXPECT_NE(message.find("attention.unheard_of"), std::string::npos) << message;

    Altered tensor(model);
    tensor.copy.add_tensor("blk.0.unheard_of.weight", {48});
    message = failure(tensor.copy);
    EXPECT_TRUE(message.starts_with("unsupported: ")) << message;
    EXPECT_NE(message.find("blk.0.unheard_of.weight"), std::string::npos) << message;

    Altered scaling(model);
    scaling.copy.set(scaling.architecture + ".rope.scaling.type", std::string("unheard-of"));
    message = failure(scaling.copy);
    EXPECT_NE(message.find("rope.scaling.type"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace lemma::model::arch
