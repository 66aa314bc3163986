// SPDX-License-Identifier: Apache-2.0
#include "quantize/importance.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "weights/expect_error.hpp"
#include "weights/gguf/writer.hpp"

namespace lemma::quantize {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using weights::expect_error;

class ImportanceFile : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::path(testing::TempDir()) / ("lemma_importance_" + std::string(info->name()));
  }
  void TearDown() override { fs::remove(path_); }

  /// The older form: i32 and f32 one after the other.
  void write_old(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  static std::string number(std::int32_t value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  static std::string real(float value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }

  fs::path path_;
};

TEST_F(ImportanceFile, ComesBackAsItWasWritten) {
  Importance importance;
  importance.entries["a"] = {2, {4, 6}, {2}};
  importance.entries["b"] = {2, {1, 2, 0, 0}, {1, 0}};
  importance.texts = {"text.txt"};
  importance.parts = 3;
  importance.tokens_per_part = 512;
  importance.write(path_);
  const Importance read = Importance::read(path_);
  ASSERT_EQ(read.entries.size(), 2u);
  EXPECT_THAT(read.entries.at("a").means(0), ElementsAre(2, 3));
  EXPECT_THAT(read.entries.at("b").counts, ElementsAre(1, 0));
  EXPECT_THAT(read.texts, ElementsAre("text.txt"));
  EXPECT_EQ(read.parts, 3u);
  EXPECT_EQ(read.tokens_per_part, 512u);
}

TEST_F(ImportanceFile, AnExpertThatWasNeverSeenSaysNothing) {
  const Importance::Entry entry{2, {1, 3, 0, 0}, {2, 0}};
  EXPECT_EQ(entry.unseen(), 1u);
  EXPECT_THAT(entry.means(0), ElementsAre(0.5f, 1.5f));
  EXPECT_THAT(entry.means(1), ElementsAre(1, 1));
}

TEST_F(ImportanceFile, ReadsTheOlderForm) {
  write_old(number(1) + number(4) + "blk0" + number(2) + number(2) + real(4) + real(6) + number(7) +
            number(5) + "a.txt");
  const Importance read = Importance::read(path_);
  EXPECT_THAT(read.entries.at("blk0").means(0), ElementsAre(2, 3));
  EXPECT_EQ(read.parts, 7u);
  EXPECT_THAT(read.texts, ElementsAre("a.txt"));
}

TEST_F(ImportanceFile, TheOlderFormHoldsAStackInOneRow) {
  Importance importance;
  importance.entries["x"] = {6, {2, 4, 0, 0, 6, 8}, {2}};
  const auto entry = importance.find("x", 2, 3);
  ASSERT_TRUE(entry);
  EXPECT_THAT(entry->means(0), ElementsAre(1, 2));
  EXPECT_THAT(entry->means(1), ElementsAre(1, 1));
  EXPECT_THAT(entry->means(2), ElementsAre(3, 4));
  EXPECT_EQ(entry->unseen(), 1u);
}

TEST_F(ImportanceFile, ExpertsUnderNamesOfTheirOwnAreJoined) {
  Importance importance;
  importance.entries["blk.0.ffn_up.0.weight"] = {2, {1, 2}, {1}};
  importance.entries["blk.0.ffn_up.2.weight"] = {2, {3, 4}, {1}};
  const auto entry = importance.find("blk.0.ffn_up_exps.weight", 2, 3);
  ASSERT_TRUE(entry);
  EXPECT_THAT(entry->means(2), ElementsAre(3, 4));
  EXPECT_EQ(entry->unseen(), 1u);
  EXPECT_FALSE(importance.find("blk.1.ffn_up_exps.weight", 2, 3));
}

TEST_F(ImportanceFile, RefusesOtherShapes) {
  Importance importance;
  importance.entries["x"] = {4, {1, 2, 3, 4}, {1}};
  expect_error(ErrorKind::kUsage,
               "importance of 'x': expected 3 matrices of 2 columns, found 1 of 4",
               [&] { importance.find("x", 2, 3); });
}

TEST_F(ImportanceFile, RefusesNumbersThatAreNone) {
  for (const float bad :
       {-1.f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Importance importance;
    importance.entries["x"] = {1, {bad}, {1}};
    importance.write(path_);
    expect_error(ErrorKind::kBadFile, "importance of 'x'", [&] { Importance::read(path_); });
  }
}

TEST_F(ImportanceFile, RefusesDamagedFiles) {
  const std::string whole =
      number(1) + number(1) + "x" + number(1) + number(2) + real(1) + real(2) + number(0);
  for (std::size_t n = 0; n < whole.size() - 4; ++n) {
    write_old(whole.substr(0, n));
    expect_error(ErrorKind::kBadFile, "no importance file", [&] { Importance::read(path_); });
  }
  write_old(number(1) + number(1) + "x" + number(1) + number(0x7fffffff));
  expect_error(ErrorKind::kBadFile, "longer than the file", [&] { Importance::read(path_); });
  write_old(number(-1));
  expect_error(ErrorKind::kBadFile, "negative", [&] { Importance::read(path_); });
  weights::gguf::Writer writer;
  writer.write(path_);
  expect_error(ErrorKind::kBadFile, "expected general.type 'imatrix'",
               [&] { Importance::read(path_); });
}

}  // namespace
}  // namespace lemma::quantize
