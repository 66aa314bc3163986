// SPDX-License-Identifier: Apache-2.0
// What is written is read back, and what is wrong in a header is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>

#include "lemma/error.hpp"
#include "weights/safetensors/header.hpp"
#include "weights/safetensors/writer.hpp"

namespace lemma::weights {
namespace {

using ::testing::HasSubstr;

std::string with_header(const std::string& json, std::size_t data_bytes) {
  std::string file(8, '\0');
  const std::uint64_t length = json.size();
  std::memcpy(file.data(), &length, sizeof length);
  return file + json + std::string(data_bytes, '\0');
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "x.safetensors");
}

std::string error_of(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadFile);
    return error.what();
  }
  return "no error";
}

class Path {
 public:
  Path()
      : path_(std::filesystem::temp_directory_path() /
              ("lemma-safetensors-" + std::to_string(::getpid()))) {}
  ~Path() { std::filesystem::remove(path_); }
  const std::filesystem::path& get() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Safetensors, GivesBackWhatWasWrittenInPieces) {
  const Path path;
  const std::array<float, 6> rows = {1, 2, 3, 4, 5, 6};
  const std::array<std::int32_t, 2> ids = {7, -8};
  SafetensorsWriter writer(path.get(), {{"rows", "F32", {2, 3}}, {"ids", "I32", {2}}},
                           {{"model", "a \"quoted\" name"}});
  writer.write(1, 0, std::as_bytes(std::span(ids)));
  writer.write(0, 12, std::as_bytes(std::span(rows).subspan(3)));
  writer.write(0, 0, std::as_bytes(std::span(rows).first(3)));
  EXPECT_FALSE(std::filesystem::exists(path.get()));
  writer.publish();

  std::ifstream in(path.get(), std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  const SafetensorsHeader header = parse(file);
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.entries[0].name, "rows");
  EXPECT_EQ(header.entries[0].dtype, "F32");
  EXPECT_EQ(header.entries[0].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(file.data() + header.entries[0].begin, rows.data(), sizeof rows), 0);
  EXPECT_EQ(std::memcmp(file.data() + header.entries[1].begin, ids.data(), sizeof ids), 0);
  ASSERT_EQ(header.metadata.size(), 1u);
  EXPECT_EQ(header.metadata[0].second, "a \"quoted\" name");
}

TEST(Safetensors, LeavesNothingBehindWhenItIsNotWhole) {
  const Path path;
  {
    SafetensorsWriter writer(path.get(), {{"rows", "F32", {2}}}, {});
    const float one = 1;
    writer.write(0, 0, std::as_bytes(std::span(&one, 1)));
    EXPECT_THROW(writer.publish(), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(path.get()));
  const std::string partial = path.get().string() + ".partial-" + std::to_string(::getpid());
  EXPECT_FALSE(std::filesystem::exists(partial));
}

TEST(Safetensors, RefusesALengthBeyondTheFile) {
  EXPECT_THAT(error_of("short"), HasSubstr("5 bytes"));
  EXPECT_THAT(error_of(std::string(8, '\xff')), HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(error_of(with_header("[1]", 0)), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of(with_header("{", 0)), HasSubstr("no JSON object"));
}

TEST(Safetensors, NamesTheTensorAndTheFieldThatIsWrong) {
  const auto tensor = [](const std::string& fields, std::size_t bytes = 8) {
    return error_of(with_header("{\"t\":" + fields + "}", bytes));
  };
  EXPECT_THAT(tensor("3"), HasSubstr("'t': expected an object"));
  EXPECT_THAT(tensor(R"({"shape":[2],"data_offsets":[0,8]})"), HasSubstr("dtype"));
  EXPECT_THAT(tensor(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"), HasSubstr("F31"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), HasSubstr("shape"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
              HasSubstr("shape takes"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,12]})"), HasSubstr("outside"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), HasSubstr("outside"));
  // A product that wraps to what is there.
  EXPECT_THAT(
      tensor(R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,0]})", 0),
      HasSubstr("shape takes"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), HasSubstr("expected"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
              HasSubstr("4 bytes belong to no tensor"));
}

TEST(Safetensors, RefusesANameThatStandsTwice) {
  const std::string entry = R"("t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(parse(with_header("{" + entry + "}", 0)).entries.size(), 1u);
  EXPECT_THAT(error_of(with_header("{" + entry + "," + entry + "}", 0)), HasSubstr("twice"));
}

}  // namespace
}  // namespace lemma::weights
