// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf/writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>

#include "weights/expect_error.hpp"
#include "weights/gguf/checkpoint.hpp"
#include "weights/gguf/partial_file.hpp"
#include "weights/gguf/reader.hpp"

namespace lemma::weights::gguf {
namespace {

namespace fs = std::filesystem;

class GgufWriter : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("lemma_writer_" + std::string(info->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

void expect_equal(const Value& read, const Value& written) {
  EXPECT_EQ(read.type_name, written.type_name);
  EXPECT_TRUE(read.data == written.data) << written.type_name;
}

TEST_F(GgufWriter, RoundTripsEveryTypeOfMetadata) {
  constexpr auto kI64Min = std::numeric_limits<std::int64_t>::min();
  constexpr auto kU64Max = std::numeric_limits<std::uint64_t>::max();
  const std::vector<Value> values = {
      {std::int64_t{255}, "u8"},
      {std::int64_t{-128}, "i8"},
      {std::int64_t{65535}, "u16"},
      {std::int64_t{-32768}, "i16"},
      {std::int64_t{4294967295}, "u32"},
      {std::int64_t{-2147483648}, "i32"},
      {0.5, "f32"},
      {true, "bool"},
      {std::string("text\0with a zero", 16), "string"},
      {kU64Max, "u64"},
      {kI64Min, "i64"},
      {1e300, "f64"},
      {Value::Ints{0, 255}, "array of u8"},
      {Value::Ints{-128, 127}, "array of i8"},
      {Value::Ints{0, 65535}, "array of u16"},
      {Value::Ints{-32768, 32767}, "array of i16"},
      {Value::Ints{0, 4294967295}, "array of u32"},
      {Value::Ints{-2147483648, 2147483647}, "array of i32"},
      {Value::Floats{0.25, -1.5}, "array of f32"},
      {Value::Bools{true, false, true}, "array of bool"},
      {Value::Strings{"", "b", "\xe4\xb8\x96"}, "array of string"},
      {Value::Uints{0, kU64Max}, "array of u64"},
      {Value::Ints{kI64Min, 1}, "array of i64"},
      {Value::Floats{1e300, -0.1}, "array of f64"},
      {Value::Strings{}, "array of string"},
  };
  Writer writer;
  for (std::size_t i = 0; i < values.size(); ++i) writer.add("k" + std::to_string(i), values[i]);
  const auto bytes = writer.bytes();
  const Contents contents = parse(bytes, "memory");
  ASSERT_EQ(contents.metadata.pairs().size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(contents.metadata.pairs()[i].first, "k" + std::to_string(i));
    expect_equal(contents.metadata.pairs()[i].second, values[i]);
  }
}

TEST_F(GgufWriter, RoundTripsTensorsOfEveryFormat) {
  Writer writer;
  std::vector<std::vector<std::byte>> data;
  for (const Format format : kFormats) {
    data.emplace_back(6 * row_bytes(format, 256));
    for (std::size_t i = 0; i < data.back().size(); ++i) {
      data.back()[i] = static_cast<std::byte>(i * 7 + data.size());
    }
  }
  for (const Format format : kFormats) {
    writer.add_tensor(std::string(traits(format).name), format, {3, 2, 256},
                      data[static_cast<std::size_t>(format)]);
  }
  writer.write(folder_ / "model.gguf");
  const auto checkpoint = open(folder_ / "model.gguf");
  for (const Format format : kFormats) {
    const TensorInfo& tensor = checkpoint->at(traits(format).name);
    EXPECT_EQ(tensor.format, format);
    EXPECT_EQ(tensor.shape, (std::vector<std::uint64_t>{3, 2, 256}));
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, data[static_cast<std::size_t>(format)]));
  }
}

TEST_F(GgufWriter, AlignsTensorsAsTheKeySays) {
  const std::vector<std::byte> bytes(4, std::byte{9});
  for (const std::uint32_t alignment : {8u, 64u, 4096u}) {
    Writer writer;
    writer.add("general.alignment", alignment);
    writer.add_tensor("a", Format::kF32, {1}, bytes);
    writer.add_tensor("b", Format::kF32, {1}, bytes);
    const auto file = writer.bytes();
    EXPECT_EQ(file.size() % alignment, 0u);
    const Contents contents = parse(file, "memory");
    for (const TensorInfo& tensor : contents.tensors) {
      EXPECT_EQ((tensor.bytes.data() - file.data()) % alignment, 0);
      EXPECT_EQ(tensor.bytes[0], std::byte{9});
    }
  }
}

TEST_F(GgufWriter, MakesTensorsWhenTheirTurnComes) {
  int made = 0;
  Writer writer;
  writer.add_tensor("w", Format::kF32, {2}, [&made] {
    ++made;
    return std::vector<std::byte>(8, std::byte{3});
  });
  EXPECT_EQ(made, 0);
  writer.write(folder_ / "model.gguf");
  EXPECT_EQ(made, 1);
  EXPECT_EQ(open(folder_ / "model.gguf")->at("w").bytes[7], std::byte{3});
}

TEST_F(GgufWriter, RefusesValuesThatTheirTypeCannotHold) {
  Writer writer;
  expect_error(ErrorKind::kUsage, "key 'k': 256 does not fit the type u8", [&] {
    writer.add("k", Value{std::int64_t{256}, "u8"});
  });
  expect_error(ErrorKind::kUsage, "does not fit the type f32", [&] {
    writer.add("k", Value{1e300, "f32"});
  });
  expect_error(ErrorKind::kUsage, "key 'k': its value is not of the type string", [&] {
    writer.add("k", Value{1.0, "string"});
  });
  expect_error(ErrorKind::kUsage, "key 'k': its value is not of the type array of u8", [&] {
    writer.add("k", Value{std::int64_t{1}, "array of u8"});
  });
  expect_error(ErrorKind::kUsage, "GGUF has no type 'u128'", [&] {
    writer.add("k", Value{std::int64_t{1}, "u128"});
  });
  writer.add("k", std::uint32_t{1});
  expect_error(ErrorKind::kUsage, "key 'k' is there already",
               [&] { writer.add("k", std::uint32_t{2}); });
}

TEST_F(GgufWriter, RefusesTensorsThatGgufCannotHold) {
  Writer writer;
  const std::vector<std::byte> bytes(34);
  expect_error(ErrorKind::kUsage, "tensor 'w': expected 34 bytes for its shape, found 33",
               [&] { writer.add_tensor("w", Format::kQ8_0, {32}, std::span(bytes).first(33)); });
  expect_error(ErrorKind::kUsage, "found [33]",
               [&] { writer.add_tensor("w", Format::kQ8_0, {33}, bytes); });
  expect_error(ErrorKind::kUsage, "found [0, 32]", [&] {
    writer.add_tensor("w", Format::kQ8_0, {0, 32}, bytes);
  });
  expect_error(ErrorKind::kUsage, "found []",
               [&] { writer.add_tensor("w", Format::kQ8_0, {}, bytes); });
  writer.add_tensor("w", Format::kQ8_0, {32}, bytes);
  expect_error(ErrorKind::kUsage, "tensor 'w' is there already",
               [&] { writer.add_tensor("w", Format::kQ8_0, {32}, bytes); });
}

TEST_F(GgufWriter, LeavesNothingBehindWhenItFails) {
  std::ofstream(folder_ / "model.gguf") << "the old file";
  Writer writer;
  writer.add_tensor("w", Format::kF32, {2}, []() -> std::vector<std::byte> {
    throw Error(ErrorKind::kCancelled, "stopped");
  });
  expect_error(ErrorKind::kCancelled, "stopped", [&] { writer.write(folder_ / "model.gguf"); });
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  EXPECT_EQ(fs::file_size(folder_ / "model.gguf"), 12u);
}

/// A writer of three tensors, the last of which fails; `streamed` counts tensors that were asked
/// for.
Writer interrupted_writer(int& streamed, bool fails, std::string_view recipe) {
  Writer writer;
  writer.add("recipe", recipe);
  for (const char* name : {"a", "b", "c"}) {
    writer.add_tensor(name, Format::kF32, {2}, [&streamed, fails, name](const Writer::Sink& sink) {
      ++streamed;
      sink(std::vector<std::byte>(4, std::byte{1}));
      if (fails && *name == 'c') throw Error(ErrorKind::kCancelled, "stopped");
      sink(std::vector<std::byte>(4, std::byte{2}));
    });
  }
  return writer;
}

TEST_F(GgufWriter, GoesOnBehindTheLastWholeTensor) {
  int streamed = 0;
  expect_error(ErrorKind::kCancelled, "stopped", [&] {
    interrupted_writer(streamed, true, "r").write_resumable(folder_ / "model.gguf");
  });
  EXPECT_FALSE(fs::exists(folder_ / "model.gguf"));
  EXPECT_TRUE(fs::exists(folder_ / "model.gguf.partial"));
  streamed = 0;
  const Writer writer = interrupted_writer(streamed, false, "r");
  EXPECT_EQ(writer.write_resumable(folder_ / "model.gguf"), 2u);
  EXPECT_EQ(streamed, 1);
  EXPECT_FALSE(fs::exists(folder_ / "model.gguf.partial"));
  const auto bytes = writer.bytes();
  std::ifstream file(folder_ / "model.gguf", std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(found, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST_F(GgufWriter, StartsAnewWhenTheLeftoverIsOfAnotherFile) {
  int streamed = 0;
  expect_error(ErrorKind::kCancelled, "stopped", [&] {
    interrupted_writer(streamed, true, "other").write_resumable(folder_ / "model.gguf");
  });
  streamed = 0;
  const Writer writer = interrupted_writer(streamed, false, "r");
  EXPECT_EQ(writer.write_resumable(folder_ / "model.gguf"), 0u);
  EXPECT_EQ(streamed, 3);
  EXPECT_EQ(open(folder_ / "model.gguf")->metadata().string("recipe"), "r");
}

TEST_F(GgufWriter, LetsOneWriterAtATimeWorkOnAFile) {
  PartialFile other(folder_ / "model.gguf", ".partial", PartialFile::Leftover::kRemove);
  int streamed = 0;
  expect_error(ErrorKind::kIo, "another process is writing it", [&] {
    interrupted_writer(streamed, false, "r").write_resumable(folder_ / "model.gguf");
  });
  EXPECT_EQ(streamed, 0);
}

TEST_F(GgufWriter, RefusesAStreamOfAnotherLengthThanItsTensor) {
  for (const std::size_t length : {7u, 9u}) {
    Writer writer;
    writer.add_tensor("w", Format::kF32, {2},
                      [length](const Writer::Sink& sink) { sink(std::vector<std::byte>(length)); });
    expect_error(ErrorKind::kInternal, "tensor 'w': expected 8 bytes to write",
                 [&] { writer.write(folder_ / "model.gguf"); });
  }
}

TEST_F(GgufWriter, NamesTheFileThatItCannotCreate) {
  expect_error(ErrorKind::kIo, "no-such-folder/model.gguf",
               [&] { Writer().write(folder_ / "no-such-folder" / "model.gguf"); });
}

}  // namespace
}  // namespace lemma::weights::gguf
