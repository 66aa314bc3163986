// SPDX-License-Identifier: Apache-2.0
// Hostile folders: what is wrong is named, and nothing outside the folder is opened.
#include "weights/safetensors/folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lemma/error.hpp"
#include "weights/safetensors/config.hpp"
#include "weights/safetensors/tiny_folder.hpp"

namespace lemma::weights::safetensors {
namespace {

using ::testing::HasSubstr;

template <typename Function>
std::string error_of(Function function, ErrorKind kind = ErrorKind::kBadFile) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

/// A folder of two shards with an index that `weight_map` says.
TinyFolder sharded(const nlohmann::json& weight_map) {
  TinyFolder folder;
  folder.add("a", {2});
  folder.add("b", {3});
  folder.write_tensors("one.safetensors", {folder.tensors[0]});
  folder.write_tensors("two.safetensors", {folder.tensors[1]});
  folder.write_text(std::string(kIndexFile), nlohmann::json{{"weight_map", weight_map}}.dump());
  return folder;
}

TEST(Folder, JoinsTheShardsOfAnIndex) {
  const TinyFolder tiny = sharded({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  const Folder folder(tiny.path());
  EXPECT_EQ(folder.files().size(), 2u);
  EXPECT_EQ(folder.tensors().at("a").shape, std::vector<std::uint64_t>{2});
  EXPECT_EQ(folder.tensors().at("b").bytes.size(), 12u);
  // A shard leads to all of them.
  EXPECT_EQ(Folder(tiny.path() / "two.safetensors").files().size(), 2u);
}

TEST(Folder, NamesTheShardThatIsMissing) {
  const TinyFolder tiny = sharded({{"a", "one.safetensors"}, {"b", "three.safetensors"}});
  EXPECT_THAT(error_of([&] { Folder folder(tiny.path()); }, ErrorKind::kNotFound),
              HasSubstr("three.safetensors"));
}

TEST(Folder, NamesTheTensorThatIsNotWhereTheIndexSays) {
  const TinyFolder tiny = sharded({{"a", "one.safetensors"}, {"b", "one.safetensors"}});
  EXPECT_THAT(error_of([&] { Folder folder(tiny.path()); }), HasSubstr("'b' in one.safetensors"));
}

TEST(Folder, OpensNoFileOutsideTheFolder) {
  for (const char* file :
       {"../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..\\x.safetensors",
        "C:x.safetensors", ".safetensors", ".hidden.safetensors", "passwd", ""}) {
    const TinyFolder tiny = sharded({{"a", file}});
    EXPECT_THAT(error_of([&] { Folder folder(tiny.path()); }),
                HasSubstr("expected the name of a safetensors file in the same folder"))
        << file;
  }
}

TEST(Folder, RefusesATensorThatStandsInTwoShards) {
  TinyFolder tiny = sharded({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  tiny.write_tensors("two.safetensors", tiny.tensors);
  EXPECT_THAT(error_of([&] { Folder folder(tiny.path()); }), HasSubstr("'a'"));
}

TEST(Folder, RefusesSeveralFilesWithoutAnIndex) {
  TinyFolder tiny = sharded({});
  std::filesystem::remove(tiny.path() / kIndexFile);
  EXPECT_THAT(error_of([&] { Folder folder(tiny.path()); }),
              HasSubstr("one.safetensors, two.safetensors"));
}

TEST(Folder, RefusesAnIndexWithoutTensors) {
  for (const char* text : {"", "[]", "{}", "{\"weight_map\": []}", "{\"weight_map\": {}}",
                           "{\"weight_map\": {\"a\": 3}}", "{\"weight_map\": {\"a\": null}}"}) {
    EXPECT_NE(error_of([&] { parse_index(text, "index"); }), "no error") << text;
  }
}

TEST(Folder, RefusesATensorWithoutElements) {
  TinyFolder tiny;
  tiny.add("nothing", {4, 0});
  tiny.write();
  EXPECT_THAT(error_of([&] { Folder folder(tiny.path()); }), HasSubstr("'nothing'"));
}

TEST(Config, RefusesWhatIsNoObjectDeepOrTwice) {
  const auto parse = [](const std::string& text) { Config::parse(text, "config.json"); };
  for (const char* text : {"", "[1]", "3", "{\"a\": }", "{\"a\": 1} x"})
    EXPECT_NE(error_of([&] { parse(text); }), "no error") << text;
  EXPECT_THAT(error_of([&] { parse("{\"a\": 1, \"a\": 2}"); }), HasSubstr("'a' stands twice"));
  const std::string deep(100, '[');
  EXPECT_THAT(error_of([&] { parse("{\"a\": " + deep + std::string(100, ']') + "}"); }),
              HasSubstr("deeper"));
}

TEST(Config, NamesTheKeyWhoseTypeOrRangeIsWrong) {
  const Config config = Config::parse(
      "{\"n\": -1, \"big\": 4294967296, \"half\": 0.5, \"word\": \"x\", \"huge\": 1e39,"
      " \"in\": {\"list\": [1, \"a\"]}, \"nothing\": null}",
      "config.json");
  for (const char* key : {"n", "big", "half", "word", "nothing", "absent"})
    EXPECT_THAT(error_of([&] { config.u32(key); }), HasSubstr("'" + std::string(key) + "'"));
  EXPECT_THAT(error_of([&] { config.f32("huge"); }), HasSubstr("'huge'"));
  EXPECT_THAT(error_of([&] { config.boolean("n"); }), HasSubstr("'n'"));
  EXPECT_THAT(error_of([&] { config.object("in").u32s("list"); }), HasSubstr("'in.list'"));
  EXPECT_EQ(config.u32_or("nothing", 7), 7u);
}

TEST(Config, RefusesByNameWhatNobodyReadUnlessItIsSwitchedOff) {
  const Config config = Config::parse(
      "{\"read\": 1, \"off\": false, \"none\": null, \"new_word\": 2}", "config.json");
  config.u32("read");
  EXPECT_THAT(error_of([&] { config.refuse_unread("llama"); }, ErrorKind::kUnsupported),
              HasSubstr("'new_word'"));
  config.ignore("new_word");
  config.refuse_unread("llama");
}

}  // namespace
}  // namespace lemma::weights::safetensors
