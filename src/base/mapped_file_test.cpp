// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "lemma/error.hpp"

namespace lemma::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "mapped_file_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const char* name, std::string_view text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string_view text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  static void expect_error(const std::filesystem::path& path, ErrorKind kind, const char* reason) {
    try {
      MappedFile::open(path);
      FAIL() << "opened " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string()), HasSubstr(reason)));
    }
  }

  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, ShowsTheBytesOfTheFile) {
  const std::string text("a\0b\xff", 4);
  const auto file = MappedFile::open(write("file", text));
  EXPECT_EQ(text_of(file), text);
  EXPECT_EQ(file.path(), folder_ / "file");
}

TEST_F(MappedFileTest, HasNoBytesForAnEmptyFile) {
  EXPECT_TRUE(MappedFile::open(write("empty", "")).bytes().empty());
}

TEST_F(MappedFileTest, KeepsItsBytesWhenMovedAndWhenTheFileIsDeleted) {
  auto first = MappedFile::open(write("file", "kept"));
  std::filesystem::remove(folder_ / "file");
  MappedFile second(std::move(first));
  EXPECT_TRUE(first.bytes().empty());  // NOLINT: the moved-from state is what is tested
  MappedFile third = MappedFile::open(write("other", "x"));
  third = std::move(second);
  EXPECT_EQ(text_of(third), "kept");
}

TEST_F(MappedFileTest, PrefetchesAnyRangeWithoutChangingBytes) {
  const auto file = MappedFile::open(write("file", std::string(10000, 'q')));
  file.prefetch(5000, 100);
  file.prefetch(9999, ~std::size_t{0});
  file.prefetch(20000, 1);
  EXPECT_EQ(text_of(file), std::string(10000, 'q'));
}

TEST_F(MappedFileTest, TellsWhatIsCachedOfAnyRange) {
  const MappedFile file = MappedFile::open(write("a", std::string(70'000, 'x')));
  expect_scattered_reads(file.bytes());
  expect_scattered_reads(file.bytes().subspan(5, 10));
  for (const std::size_t at : {0, 5000, 69'999}) {
    EXPECT_EQ(file.bytes()[at], std::byte{'x'});
    EXPECT_TRUE(seems_cached(file.bytes().subspan(at, 1)));
  }
  EXPECT_TRUE(seems_cached({}));
}

TEST_F(MappedFileTest, LetsGoOfItsOwnPagesAloneAndReadsThemAgain) {
  const std::string text(100000, 'q');
  const auto file = MappedFile::open(write("file", text));
  EXPECT_EQ(text_of(file), text);
  EXPECT_TRUE(let_go(file.bytes().subspan(10, 90000)));
  EXPECT_EQ(text_of(file), text);
  std::vector<std::byte> memory(100000, std::byte{7});
  EXPECT_FALSE(let_go(memory));
  EXPECT_EQ(memory[50000], std::byte{7});
  EXPECT_FALSE(let_go({}));
}

TEST_F(MappedFileTest, RefusesAnAbsentFile) {
  expect_error(folder_ / "absent", ErrorKind::kNotFound, "No such file");
}

TEST_F(MappedFileTest, RefusesAPathThroughAFile) {
  expect_error(write("file", "x") / "below", ErrorKind::kNotFound, "Not a directory");
}

TEST_F(MappedFileTest, RefusesAFolder) {
  expect_error(folder_, ErrorKind::kIo, "folder");
}

TEST_F(MappedFileTest, RefusesANamedPipeWithoutWaiting) {
  const auto path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error(path, ErrorKind::kIo, "regular file");
}

}  // namespace
}  // namespace lemma::base
