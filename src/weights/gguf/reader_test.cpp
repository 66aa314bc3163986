// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf/reader.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "weights/expect_error.hpp"
#include "weights/gguf/writer.hpp"

namespace lemma::weights::gguf {
namespace {

constexpr std::uint32_t kF32Type = 0, kU8 = 0, kU32 = 4, kI32 = 5, kString = 8, kArray = 9;

/// A file put together byte by byte, so that it may lie. It owns the bytes that it parses.
class RawFile {
 public:
  explicit RawFile(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    raw("GGUF");
    put(version).put(tensors).put(keys);
  }

  template <typename T>
  RawFile& put(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
    return *this;
  }
  RawFile& u32(std::uint32_t value) { return put(value); }
  RawFile& u64(std::uint64_t value) { return put(value); }
  RawFile& raw(std::string_view text) {
    for (const char c : text) put(c);
    return *this;
  }
  RawFile& string(std::string_view text) { return u64(text.size()).raw(text); }
  RawFile& tensor(std::string_view name, const std::vector<std::uint64_t>& sizes,
                  std::uint32_t type, std::uint64_t offset) {
    string(name).u32(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) u64(size);
    return u32(type).u64(offset);
  }
  /// Pads to `alignment` and adds a data section of `size` bytes 0, 1, 2, ...
  RawFile& data(std::size_t size, std::size_t alignment = 32) {
    while (bytes_.size() % alignment != 0) put(char{0});
    for (std::size_t i = 0; i < size; ++i) put(static_cast<std::uint8_t>(i));
    return *this;
  }

  std::size_t size() const { return bytes_.size(); }
  Contents parse(std::size_t cut = 0) const {
    return gguf::parse(std::span(bytes_).first(bytes_.size() - cut), "tiny.gguf");
  }
  void expect(ErrorKind kind, const std::string& part) const {
    expect_error(kind, part, [this] { parse(); });
  }

 private:
  std::vector<std::byte> bytes_;
};

constexpr auto kBad = ErrorKind::kBadFile;
constexpr auto kUnsupported = ErrorKind::kUnsupported;

TEST(GgufReader, ReadsVersions2And3) {
  for (const std::uint32_t version : {2u, 3u}) {
    RawFile file(1, 1, version);
    file.string("general.name")
        .u32(kString)
        .string("tiny")
        .tensor("w", {2, 3}, kF32Type, 0)
        .data(24);
    const Contents contents = file.parse();
    EXPECT_EQ(contents.version, version);
    EXPECT_EQ(contents.metadata.string("general.name"), "tiny");
    ASSERT_EQ(contents.tensors.size(), 1u);
    EXPECT_EQ(contents.tensors[0].shape, (std::vector<std::uint64_t>{3, 2}));
    EXPECT_EQ(contents.tensors[0].bytes.size(), 24u);
    EXPECT_EQ(contents.tensors[0].bytes[5], std::byte{5});
  }
}

TEST(GgufReader, ReadsAFileOfMetadataAlone) {
  const Contents contents = RawFile(0, 1).string("k").u32(kU32).u32(5).parse();
  EXPECT_EQ(contents.metadata.u32("k"), 5u);
  EXPECT_TRUE(contents.tensors.empty());
}

TEST(GgufReader, RefusesWhatIsNotGguf) {
  const std::string text = "PK\x03\x04 this is an archive, not a model";
  expect_error(kBad,
               "x.gguf: not a GGUF file: expected it to begin with 47 47 55 46 (\"GGUF\"), "
               "found 50 4b 03 04",
               [&] { parse(std::as_bytes(std::span(text)), "x.gguf"); });
}

TEST(GgufReader, RefusesAnEmptyFile) {
  expect_error(kBad,
               "x.gguf: truncated at offset 0: the magic number takes 4 bytes, but only 0 "
               "remain, 4 bytes missing",
               [] { parse({}, "x.gguf"); });
}

TEST(GgufReader, RefusesBigEndianByName) {
  RawFile(0, 0, 0x03000000).expect(kUnsupported, "a big-endian GGUF file");
}

TEST(GgufReader, RefusesOtherVersions) {
  RawFile(0, 0, 1).expect(kUnsupported, "GGUF version 1; expected 2 or 3");
  RawFile(0, 0, 4).expect(kUnsupported, "GGUF version 4; expected 2 or 3");
  RawFile(0, 0, 0).expect(kBad, "GGUF version 0; expected 2 or 3");
}

TEST(GgufReader, SaysHowManyBytesATensorLacks) {
  RawFile file(2, 0);
  file.tensor("first", {8}, kF32Type, 0).tensor("last", {8}, kF32Type, 32).data(64);
  EXPECT_EQ(file.parse().tensors.size(), 2u);
  expect_error(kBad,
               "tiny.gguf: truncated: tensor 'last' ends at byte 64 of the data section, but "
               "the file has only 57 bytes of it, 7 bytes missing",
               [&] { file.parse(7); });
  // Cut in the padding before the data section: all of it is missing, and some padding.
  RawFile padded(1, 0);
  padded.tensor("w", {8}, kF32Type, 0).data(32);
  expect_error(kBad, "has only 0 bytes of it, 35 bytes missing", [&] { padded.parse(35); });
}

TEST(GgufReader, RefusesAFileCutAnywhere) {
  RawFile file(1, 2);
  file.string("a.string")
      .u32(kString)
      .string("text")
      .string("an.array")
      .u32(kArray)
      .u32(kI32)
      .u64(3)
      .u32(1)
      .u32(2)
      .u32(3)
      .tensor("w", {8}, kF32Type, 0)
      .data(32);
  ASSERT_EQ(file.parse().tensors.size(), 1u);
  for (std::size_t cut = 1; cut <= file.size(); ++cut) {
    expect_error(kBad, "truncated", [&] { file.parse(cut); });
  }
}

TEST(GgufReader, ToleratesBytesAfterTheLastTensor) {
  EXPECT_EQ(RawFile(1, 0).tensor("w", {8}, kF32Type, 0).data(1000).parse().tensors.size(), 1u);
}

TEST(GgufReader, ToleratesGapsAndAnyOrderOfTensors) {
  RawFile file(2, 0);
  file.tensor("b", {1}, kF32Type, 96).tensor("a", {1}, kF32Type, 0).data(128);
  const Contents contents = file.parse();
  EXPECT_EQ(contents.tensors[0].bytes[0], std::byte{96});
  EXPECT_EQ(contents.tensors[1].bytes[0], std::byte{0});
}

// Field failure A1.

TEST(GgufReader, RefusesADimensionOfZero) {
  RawFile(1, 0)
      .tensor("zero", {1, 0}, kF32Type, 0)
      .expect(kBad, "tensor 'zero': dimension 1 has size 0");
}

TEST(GgufReader, RefusesAnEmptyKey) {
  RawFile(0, 1).u64(0).u32(kU32).u32(1).u64(0).expect(kBad, "key 1 of 1 has an empty name");
}

TEST(GgufReader, RefusesOtherNumbersOfDimensions) {
  for (const std::uint32_t dimensions : {0u, 5u, 0xffffffffu}) {
    RawFile file(1, 0);
    file.string("odd").u32(dimensions);
    for (int i = 0; i < 5; ++i) file.u64(1);
    file.u32(kF32Type).u64(0).data(32).expect(
        kBad, "tensor 'odd': expected 1 to 4 dimensions, found " + std::to_string(dimensions));
  }
}

// Field failure A2.

RawFile with_alignment(std::uint32_t type, std::uint32_t alignment, std::size_t padding = 32) {
  RawFile file(1, 1);
  file.string("general.alignment").u32(type).u32(alignment);
  file.tensor("w", {8}, kF32Type, 0).data(32, padding);
  return file;
}

TEST(GgufReader, RefusesAlignmentsThatTheFormatForbids) {
  for (const std::uint32_t alignment : {0u, 7u, 4u, 12u, 0x80000000u}) {
    with_alignment(kU32, alignment)
        .expect(kBad,
                "key 'general.alignment': expected a multiple of 8 from 8 to 1073741824, "
                "found " +
                    std::to_string(alignment));
  }
  RawFile(0, 1)
      .string("general.alignment")
      .u32(kString)
      .string("32")
      .expect(kBad, "key 'general.alignment': expected an integer, found string");
}

TEST(GgufReader, ReadsAnAlignmentOfAnotherIntegerType) {
  EXPECT_EQ(with_alignment(kI32, 32).parse().tensors.size(), 1u);
}

TEST(GgufReader, BeginsTheDataWhereTheAlignmentSays) {
  for (const std::uint32_t alignment : {8u, 16u, 24u, 64u, 128u, 4096u}) {
    const RawFile file = with_alignment(kU32, alignment, alignment);
    const Contents contents = file.parse();
    EXPECT_EQ(contents.tensors[0].bytes[0], std::byte{0}) << alignment;
    EXPECT_EQ(contents.tensors[0].bytes[31], std::byte{31}) << alignment;
  }
}

TEST(GgufReader, RefusesATensorOffItsAlignment) {
  RawFile(1, 0)
      .tensor("w", {1}, kF32Type, 16)
      .data(64)
      .expect(kBad, "tensor 'w': expected an offset that is a multiple of 32, found 16");
}

// Field failure A3. That nothing is allocated shows in the time and memory of the fuzz target, too.

constexpr std::uint64_t kMonsters[] = {std::uint64_t{1} << 40, std::uint64_t{1} << 63,
                                       std::numeric_limits<std::uint64_t>::max()};

TEST(GgufReader, RefusesCountsThatTheFileCannotHold) {
  for (const std::uint64_t count : kMonsters) {
    RawFile(count, 0).expect(kBad, "the list of tensors has " + std::to_string(count));
    RawFile(0, count).expect(kBad, "the list of keys has " + std::to_string(count));
  }
}

TEST(GgufReader, RefusesLengthsThatTheFileCannotHold) {
  for (const std::uint64_t length : kMonsters) {
    RawFile(0, 1)
        .u64(length)
        .raw("a short key name")
        .expect(kBad, "the name of key 1 of 1 takes " + std::to_string(length));
    RawFile(0, 1).string("k").u32(kString).u64(length).raw("text").expect(
        kBad, "key 'k' takes " + std::to_string(length));
    RawFile(1, 0)
        .u64(length)
        .raw(std::string(64, 'x'))
        .expect(kBad, "the name of tensor 1 of 1 takes " + std::to_string(length));
  }
}

TEST(GgufReader, RefusesArrayCountsThatTheFileCannotHold) {
  for (std::uint32_t type = 0; type < 13; ++type) {
    for (const std::uint64_t count : kMonsters) {
      RawFile(0, 1)
          .string("k")
          .u32(kArray)
          .u32(type)
          .u64(count)
          .raw("0123456789abcdef")
          .expect(kBad, "key 'k' has " + std::to_string(count));
    }
  }
}

TEST(GgufReader, RefusesSizesWhoseProductOverflows) {
  const std::uint64_t big = std::uint64_t{1} << 33;
  RawFile(1, 0)
      .tensor("w", {big, big}, kF32Type, 0)
      .expect(kBad, "tensor 'w': more elements than 64 bits can count");
  RawFile(1, 0)
      .tensor("w", {big, std::uint64_t{1} << 30}, kF32Type, 0)
      .expect(kBad, "tensor 'w': more bytes than 64 bits can count");
  RawFile(1, 0)
      .tensor("w", {8}, kF32Type, std::numeric_limits<std::uint64_t>::max() - 31)
      .expect(kBad, "tensor 'w': its end");
}

// Field failure A5: the element type is part of what a key promises.

TEST(GgufReader, KeepsTheElementTypeOfAnArray) {
  const Contents contents =
      RawFile(0, 1).string("tokenizer.ggml.scores").u32(kArray).u32(kU8).u64(4).raw("abcd").parse();
  expect_error(kBad, "key 'tokenizer.ggml.scores': expected an array of floats, found array of u8",
               [&] { contents.metadata.floats("tokenizer.ggml.scores"); });
  EXPECT_EQ(contents.metadata.i32s("tokenizer.ggml.scores"),
            (std::vector<std::int32_t>{'a', 'b', 'c', 'd'}));
}

TEST(GgufReader, ReadsAnEmptyArray) {
  const Contents contents =
      RawFile(0, 1).string("merges").u32(kArray).u32(kString).u64(0).u64(0).parse();
  EXPECT_TRUE(contents.metadata.strings("merges").empty());
}

TEST(GgufReader, RefusesNestedArraysWithTheReason) {
  RawFile(0, 1).string("k").u32(kArray).u32(kArray).u64(1).u32(kU8).u64(1).raw("a").expect(
      kUnsupported, "key 'k': an array of arrays");
}

TEST(GgufReader, RefusesUnknownValueTypes) {
  RawFile(0, 1).string("k").u32(13).u64(0).expect(kBad, "key 'k': unknown value type 13");
  RawFile(0, 1).string("k").u32(kArray).u32(99).u64(0).expect(
      kBad, "key 'k': unknown element type 99 of an array");
}

TEST(GgufReader, RefusesABoolThatIsNeither) {
  RawFile(0, 1)
      .string("k")
      .u32(7)
      .put(std::uint8_t{2})
      .u64(0)
      .expect(kBad, "key 'k': expected a bool of 0 or 1, found 2");
}

TEST(GgufReader, RefusesRepeatedNames) {
  RawFile(0, 2).string("k").u32(kU32).u32(1).string("k").u32(kU32).u32(2).expect(
      kBad, "key 'k' appears twice");
  RawFile(2, 0)
      .tensor("w", {1}, kF32Type, 0)
      .tensor("w", {1}, kF32Type, 32)
      .data(64)
      .expect(kBad, "tensor 'w' appears twice");
}

TEST(GgufReader, RefusesATensorWithoutName) {
  RawFile(1, 0).tensor("", {1}, kF32Type, 0).data(32).expect(kBad, "tensor 1 of 1 has no name");
}

TEST(GgufReader, RefusesTensorsThatOverlap) {
  RawFile(2, 0)
      .tensor("b", {8}, kF32Type, 32)
      .tensor("a", {9}, kF32Type, 0)
      .data(96)
      .expect(kBad, "tensors 'a' (bytes 0 to 36) and 'b' (from byte 32) overlap");
  RawFile(2, 0)
      .tensor("a", {8}, kF32Type, 0)
      .tensor("b", {8}, kF32Type, 0)
      .data(96)
      .expect(kBad, "overlap");
}

TEST(GgufReader, NamesATypeThatItKnowsButCannotRead) {
  RawFile(1, 0)
      .tensor("blk.0.w", {256}, 9, 0)
      .data(256)
      .expect(kUnsupported,
              "tensor 'blk.0.w': type Q8_1 is not supported (F32, F16, BF16, Q8_0, "
              "Q4_0, Q4_K, Q6_K, Q5_0, ");
  RawFile(1, 0).tensor("w", {256}, 41, 0).data(256).expect(kUnsupported, "type Q1_0 is not");
}

TEST(GgufReader, RefusesATypeThatNobodyKnows) {
  for (const std::uint32_t type : {42u, 1000u, 0xffffffffu}) {
    RawFile(1, 0)
        .tensor("w", {256}, type, 0)
        .data(1024)
        .expect(kBad, "tensor 'w': unknown type number " + std::to_string(type));
  }
}

TEST(GgufReader, RefusesRowsOfHalfABlock) {
  RawFile(1, 0)
      .tensor("w", {48, 2}, 8, 0)
      .data(256)
      .expect(kBad, "tensor 'w': expected rows of a multiple of 32 elements for Q8_0, found 48");
}

TEST(GgufReader, ShowsControlBytesOfANameEscaped) {
  RawFile(1, 0)
      .tensor("a\x1b[31m\n", {0}, kF32Type, 0)
      .expect(kBad, "tensor 'a\\x1b[31m\\x0a': dimension 0 has size 0");
}

}  // namespace
}  // namespace lemma::weights::gguf
