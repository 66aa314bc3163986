// SPDX-License-Identifier: Apache-2.0
#include "weights/metadata.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "weights/expect_error.hpp"

namespace lemma::weights {
namespace {

Metadata sample() {
  Metadata m;
  m.add("layers", {std::int64_t{12}, "u32"});
  m.add("negative", {std::int64_t{-1}, "i32"});
  m.add("huge", {std::numeric_limits<std::uint64_t>::max(), "u64"});
  m.add("base", {10000.0, "f32"});
  m.add("nan", {std::nan(""), "f32"});
  m.add("wide", {1e300, "f64"});
  m.add("name", {std::string("tiny"), "string"});
  m.add("flag", {true, "bool"});
  m.add("heads", {Value::Ints{4, 2, 4}, "array of i32"});
  m.add("ids", {Value::Ints{-1, 70000}, "array of i32"});
  m.add("wides", {Value::Uints{1, std::numeric_limits<std::uint64_t>::max()}, "array of u64"});
  m.add("scores", {Value::Floats{0.5, -1}, "array of f32"});
  m.add("infinite", {Value::Floats{0.5, INFINITY}, "array of f32"});
  m.add("pieces", {Value::Strings{"a", "b"}, "array of string"});
  m.add("pattern", {Value::Bools{true, false, true}, "array of bool"});
  return m;
}

TEST(Metadata, ReadsEachTypeByItsKey) {
  const Metadata m = sample();
  EXPECT_EQ(m.u32("layers"), 12u);
  EXPECT_EQ(m.i64("negative"), -1);
  EXPECT_EQ(m.f32("base"), 10000.f);
  EXPECT_EQ(m.string("name"), "tiny");
  EXPECT_TRUE(m.boolean("flag"));
  EXPECT_EQ(m.u32s("heads"), (std::vector<std::uint32_t>{4, 2, 4}));
  EXPECT_EQ(m.i32s("ids"), (std::vector<std::int32_t>{-1, 70000}));
  EXPECT_EQ(m.floats("scores"), (std::vector<float>{0.5f, -1.f}));
  EXPECT_EQ(m.strings("pieces"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(m.booleans("pattern"), (std::vector<bool>{true, false, true}));
}

TEST(Metadata, KeepsTheOrderOfItsPairs) {
  const Metadata m = sample();
  EXPECT_EQ(m.pairs().front().first, "layers");
  EXPECT_EQ(m.pairs().back().first, "pattern");
}

TEST(Metadata, NamesAMissingKey) {
  expect_error(ErrorKind::kBadFile, "missing key 'absent' (expected an integer)",
               [] { sample().u32("absent"); });
}

TEST(Metadata, RefusesAnotherTypeNamingBoth) {
  const Metadata m = sample();
  expect_error(ErrorKind::kBadFile, "key 'base': expected an integer, found f32",
               [&] { m.u32("base"); });
  expect_error(ErrorKind::kBadFile, "key 'layers': expected a bool, found u32",
               [&] { m.boolean("layers"); });
  expect_error(ErrorKind::kBadFile, "key 'layers': expected a float, found u32",
               [&] { m.f32("layers"); });
  expect_error(ErrorKind::kBadFile, "key 'flag': expected an integer, found bool",
               [&] { m.i64("flag"); });
  expect_error(ErrorKind::kBadFile, "key 'heads': expected an integer, found array of i32",
               [&] { m.u32("heads"); });
  expect_error(ErrorKind::kBadFile, "key 'layers': expected an array of integers, found u32",
               [&] { m.u32s("layers"); });
}

TEST(Metadata, RefusesAnArrayOfAnotherElementType) {
  const Metadata m = sample();
  expect_error(ErrorKind::kBadFile, "key 'heads': expected an array of floats, found array of i32",
               [&] { m.floats("heads"); });
  expect_error(ErrorKind::kBadFile, "key 'heads': expected an array of strings, found array of i32",
               [&] { m.strings("heads"); });
  expect_error(ErrorKind::kBadFile,
               "key 'scores': expected an array of integers, found array of f32",
               [&] { m.i32s("scores"); });
}

TEST(Metadata, RefusesIntegersOutOfRange) {
  const Metadata m = sample();
  expect_error(ErrorKind::kBadFile,
               "key 'negative': expected an integer in [0, 4294967295], found -1",
               [&] { m.u32("negative"); });
  expect_error(ErrorKind::kBadFile, "found 18446744073709551615", [&] { m.i64("huge"); });
  expect_error(ErrorKind::kBadFile, "found -1", [&] { m.u32s("ids"); });
  expect_error(ErrorKind::kBadFile, "found 18446744073709551615", [&] { m.i32s("wides"); });
}

TEST(Metadata, RefusesNumbersThatAreNotFiniteAsF32) {
  const Metadata m = sample();
  expect_error(ErrorKind::kBadFile, "key 'nan': expected a finite f32", [&] { m.f32("nan"); });
  expect_error(ErrorKind::kBadFile, "key 'wide': expected a finite f32", [&] { m.f32("wide"); });
  expect_error(ErrorKind::kBadFile, "key 'infinite': expected a finite f32",
               [&] { m.floats("infinite"); });
}

TEST(Metadata, FallsBackOnlyWhereTheKeyIsAbsent) {
  const Metadata m = sample();
  EXPECT_EQ(m.u32_or("absent", 7), 7u);
  EXPECT_EQ(m.u32_or("layers", 7), 12u);
  EXPECT_EQ(m.f32_or("absent", 0.5f), 0.5f);
  EXPECT_EQ(m.string_or("absent", "x"), "x");
  EXPECT_FALSE(m.boolean_or("absent", false));
  expect_error(ErrorKind::kBadFile, "key 'name'", [&] { m.u32_or("name", 7); });
}

TEST(Metadata, SpreadsAScalarOverTheLayers) {
  const Metadata m = sample();
  EXPECT_EQ(m.u32_per_layer("layers", 2), (std::vector<std::uint32_t>{12, 12}));
  EXPECT_EQ(m.boolean_per_layer("flag", 2), (std::vector<bool>{true, true}));
  EXPECT_EQ(m.u32_per_layer("absent", 2, 5), (std::vector<std::uint32_t>{5, 5}));
  EXPECT_EQ(m.boolean_per_layer("absent", 1, true), (std::vector<bool>{true}));
}

TEST(Metadata, TakesOneEntryForEachLayer) {
  const Metadata m = sample();
  EXPECT_EQ(m.u32_per_layer("heads", 3), (std::vector<std::uint32_t>{4, 2, 4}));
  EXPECT_EQ(m.boolean_per_layer("pattern", 2), (std::vector<bool>{true, false}));
}

TEST(Metadata, RefusesAnArrayShorterThanTheLayers) {
  const Metadata m = sample();
  expect_error(ErrorKind::kBadFile,
               "key 'heads': expected at least 4 entries, one for each layer, "
               "found 3",
               [&] { m.u32_per_layer("heads", 4); });
  expect_error(ErrorKind::kBadFile, "key 'pattern': expected at least 9 entries",
               [&] { m.boolean_per_layer("pattern", 9); });
  expect_error(ErrorKind::kBadFile, "missing key 'absent'", [&] { m.u32_per_layer("absent", 4); });
}

TEST(Metadata, RefusesAKeyThatIsThereAlready) {
  Metadata m = sample();
  expect_error(ErrorKind::kBadFile, "key 'layers' appears twice", [&] {
    m.add("layers", {std::int64_t{1}, "u32"});
  });
  EXPECT_EQ(m.u32("layers"), 12u);
}

}  // namespace
}  // namespace lemma::weights
