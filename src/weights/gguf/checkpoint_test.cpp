// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf/checkpoint.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>

#include "test_data.hpp"
#include "weights/expect_error.hpp"
#include "weights/gguf/writer.hpp"

namespace lemma::weights::gguf {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::byte, 4> kOne = {std::byte{0}, std::byte{0}, std::byte{0x80},
                                           std::byte{0x3f}};

class GgufCheckpoints : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("lemma_checkpoint_" + std::string(info->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Part `number` of three (counted from 1) with the tensors `names`.
  fs::path write_part(std::uint32_t number, const std::vector<std::string>& names,
                      std::uint32_t count_key = 3, std::uint32_t tensors_key = 4) {
    Writer writer;
    if (number == 1) writer.add("general.name", "split");
    writer.add("split.no", Value{std::int64_t{number} - 1, "u16"});
    writer.add("split.count", Value{std::int64_t{count_key}, "u16"});
    writer.add("split.tensors.count", Value{std::int64_t{tensors_key}, "i32"});
    for (const std::string& name : names) writer.add_tensor(name, Format::kF32, {1}, kOne);
    const fs::path path = folder_ / ("m-0000" + std::to_string(number) + "-of-00003.gguf");
    writer.write(path);
    return path;
  }
  fs::path write_all() {
    write_part(2, {"c"});
    write_part(3, {"d"});
    return write_part(1, {"a", "b"});
  }
  fs::path write_single(const std::string& name) {
    Writer writer;
    writer.add_tensor("a", Format::kF32, {1}, kOne);
    writer.write(folder_ / name);
    return folder_ / name;
  }

  fs::path folder_;
};

TEST(PartName, ReadsTheFormOfASplitFile) {
  const auto part = parse_part_name("big-model-00002-of-00013.gguf");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->stem, "big-model");
  EXPECT_EQ(part->number, 2u);
  EXPECT_EQ(part->count, 13u);
  EXPECT_EQ(part->of(13), "big-model-00013-of-00013.gguf");
}

TEST(PartName, IsNothingForOtherNames) {
  for (const char* name : {"model.gguf", "", "-00001-of-00001.gguf", "m-00000-of-00002.gguf",
                           "m-00003-of-00002.gguf", "m-0001-of-0002.gguf", "m-00001-of-0000x.gguf",
                           "m-00001_of_00002.gguf", "m-00001-of-00002.ggml"}) {
    EXPECT_FALSE(parse_part_name(name)) << name;
  }
}

TEST_F(GgufCheckpoints, FindsTensorsByName) {
  const auto checkpoint = open_checkpoint(write_single("model.gguf"));
  EXPECT_NE(checkpoint->find("a"), nullptr);
  EXPECT_EQ(checkpoint->find("b"), nullptr);
  EXPECT_EQ(&checkpoint->at("a"), &checkpoint->tensors()[0]);
  expect_error(ErrorKind::kBadFile, "missing tensor 'b'", [&] { checkpoint->at("b"); });
}

TEST_F(GgufCheckpoints, JoinsTheTensorsOfAllParts) {
  const fs::path first = write_all();
  for (const fs::path& path : {first, folder_}) {
    const auto checkpoint = open_checkpoint(path);
    ASSERT_EQ(checkpoint->tensors().size(), 4u);
    EXPECT_EQ(checkpoint->files().size(), 3u);
    EXPECT_EQ(checkpoint->metadata().string("general.name"), "split");
    for (const char* name : {"a", "b", "c", "d"}) {
      float value;
      std::memcpy(&value, checkpoint->at(name).bytes.data(), sizeof value);
      EXPECT_EQ(value, 1.f) << name;
    }
  }
}

TEST_F(GgufCheckpoints, NamesAMissingPart) {
  const fs::path first = write_all();
  fs::remove(folder_ / "m-00002-of-00003.gguf");
  expect_error(
      ErrorKind::kNotFound,
      "part 2 of 3 is missing: expected the file " + (folder_ / "m-00002-of-00003.gguf").string(),
      [&] { open_checkpoint(first); });
}

TEST_F(GgufCheckpoints, NamesTheMissingFirstPartOfAFolder) {
  fs::remove(write_all());
  expect_error(ErrorKind::kNotFound, "the first part m-00001-of-00003.gguf is missing",
               [&] { open_checkpoint(folder_); });
}

TEST_F(GgufCheckpoints, SendsALaterPartToTheFirst) {
  write_all();
  expect_error(ErrorKind::kUsage, "this is part 3 of 3; name the first part, m-00001-of-00003.gguf",
               [&] { open_checkpoint(folder_ / "m-00003-of-00003.gguf"); });
}

TEST_F(GgufCheckpoints, RefusesAPartOfAnotherCount) {
  const fs::path first = write_all();
  write_part(2, {"c"}, 7);
  expect_error(ErrorKind::kBadFile,
               "m-00002-of-00003.gguf: key 'split.count': expected 3 as in the "
               "file's name, found 7",
               [&] { open_checkpoint(first); });
}

TEST_F(GgufCheckpoints, RefusesAPartInAnotherPlace) {
  const fs::path first = write_all();
  fs::copy_file(folder_ / "m-00003-of-00003.gguf", folder_ / "m-00002-of-00003.gguf",
                fs::copy_options::overwrite_existing);
  expect_error(ErrorKind::kBadFile,
               "m-00002-of-00003.gguf: key 'split.no': expected 1 (counted "
               "from 0) by the file's name, found 2",
               [&] { open_checkpoint(first); });
}

TEST_F(GgufCheckpoints, RefusesAnotherNumberOfTensors) {
  const fs::path first = write_all();
  write_part(3, {"d", "e"});
  expect_error(ErrorKind::kBadFile,
               "key 'split.tensors.count': expected 4 tensors in all parts, "
               "found 5",
               [&] { open_checkpoint(first); });
}

TEST_F(GgufCheckpoints, RefusesATensorInTwoParts) {
  const fs::path first = write_all();
  write_part(3, {"a"});
  expect_error(ErrorKind::kBadFile, "tensor 'a' appears in two parts",
               [&] { open_checkpoint(first); });
}

TEST_F(GgufCheckpoints, RefusesAPartUnderAnotherName) {
  fs::rename(write_all(), folder_ / "renamed.gguf");
  expect_error(ErrorKind::kBadFile, "key 'split.count' says that it is one of 3 parts",
               [&] { open_checkpoint(folder_ / "renamed.gguf"); });
}

TEST_F(GgufCheckpoints, RefusesAPartWithoutTheKeysOfOne) {
  const fs::path first = write_single("m-00001-of-00003.gguf");
  expect_error(ErrorKind::kBadFile, "missing key 'split.count'", [&] { open_checkpoint(first); });
}

TEST_F(GgufCheckpoints, OpensTheOnlyCheckpointOfAFolder) {
  std::ofstream(folder_ / "README.md") << "text";
  write_single("model.gguf");
  EXPECT_EQ(open_checkpoint(folder_)->files().front(), folder_ / "model.gguf");
}

TEST_F(GgufCheckpoints, AsksWhichOfSeveralIsMeant) {
  write_single("b.gguf");
  write_single("a.gguf");
  expect_error(ErrorKind::kUsage, "found 2 (a.gguf, b.gguf); name one",
               [&] { open_checkpoint(folder_); });
}

TEST_F(GgufCheckpoints, SaysThatAFolderHasNone) {
  expect_error(ErrorKind::kNotFound, "neither a .gguf file nor a config.json in the folder",
               [&] { open_checkpoint(folder_); });
}

TEST_F(GgufCheckpoints, NamesAFileThatDoesNotExist) {
  expect_error(ErrorKind::kNotFound, "absent.gguf",
               [&] { open_checkpoint(folder_ / "absent.gguf"); });
}

TEST(GgufFiles, OfATokenizerHaveMetadataAlone) {
  LEMMA_TEST_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-llama-spm.gguf");
  const auto checkpoint = open_checkpoint(path);
  EXPECT_TRUE(checkpoint->tensors().empty());
  EXPECT_EQ(checkpoint->metadata().strings("tokenizer.ggml.tokens").size(), 32000u);
}

TEST(GgufFiles, OfAPublishedModelOpenWhole) {
  LEMMA_TEST_DATA_OR_SKIP(path, "models/stories260K-f32.gguf");
  const auto checkpoint = open_checkpoint(path);
  EXPECT_EQ(checkpoint->metadata().string("general.architecture"), "llama");
  EXPECT_EQ(checkpoint->at("token_embd.weight").shape, (std::vector<std::uint64_t>{512, 64}));
}

}  // namespace
}  // namespace lemma::weights::gguf
