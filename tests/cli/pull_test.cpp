// SPDX-License-Identifier: Apache-2.0
// lemma pull, list and rm, against a hub on the loopback interface that misbehaves in every way
// that hub_server.py knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Pull : public testing::Test {
 protected:
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(model, kModel);
    fs::create_directories(repository_);
    fs::copy_file(model, repository_ / "tiny-f32.gguf");
    start();
  }

  void start() {
    server_ = std::make_unique<Program>(
        "/usr/bin/env", Arguments{"python3", LEMMA_HUB_SERVER, repository_.string(), log_.string()},
        Arguments{}, "");
    port_ = server_->read_some();
    while (!port_.empty() && port_.back() == '\n') port_.pop_back();
    ASSERT_FALSE(port_.empty());
  }

  Outcome lemma(const Arguments& arguments, const Arguments& environment = {}) {
    Arguments all = {"no_proxy=*", "HF_TOKEN=", "LEMMA_CACHE=" + cache_.string(),
                     "HF_ENDPOINT=http://127.0.0.1:" + port_};
    all.insert(all.end(), environment.begin(), environment.end());
    all.push_back(LEMMA_PROGRAM);
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program_at("/usr/bin/env", all, {});
  }

  fs::path cached(const std::string& owner) const {
    return cache_ / "hf" / owner / "model" / "main" / "tiny-f32.gguf";
  }
  std::vector<nlohmann::json> requests() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(log_);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  TemporaryFolder folder_;
  fs::path repository_ = folder_ / "repository", cache_ = folder_ / "cache", log_ = folder_ / "log";
  std::unique_ptr<Program> server_;
  std::string port_;
};

TEST_F(Pull, FetchesAModelThatThenRunsByName) {
  const Outcome pulled = lemma({"pull", "hf:plain/model"});
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  EXPECT_EQ(pulled.out, cached("plain").string() + "\n");
  EXPECT_THAT(pulled.err, HasSubstr("as published"));
  EXPECT_EQ(read_file(cached("plain")), read_file(repository_ / "tiny-f32.gguf"));
  for (const char* name : {"hf:plain/model", "hf:plain/model:tiny-f32.gguf", "hf:plain/model:F32"})
    EXPECT_EQ(lemma({"tokenize", name, "Once upon"}).out, "1 403 407\n") << name;
  for (const Arguments& model : {Arguments{"hf:plain/model"}, Arguments{"-m", "hf:plain/model"}}) {
    Arguments run = {"run"};
    run.insert(run.end(), model.begin(), model.end());
    run.insert(run.end(), {"Once", "--temp", "0", "--max-tokens", "1"});
    EXPECT_EQ(lemma(run).status, 0);
  }
  EXPECT_EQ(lemma({"show", "hf:plain/model", "--diff", "hf:plain/model"}).status, 0);
}

TEST_F(Pull, GoesOnWhereTheConnectionBroke) {
  const Outcome pulled = lemma({"pull", "hf:drops/model"});
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  EXPECT_EQ(read_file(cached("drops")), read_file(repository_ / "tiny-f32.gguf"));
  std::size_t continued = 0;
  for (const auto& request : requests()) continued += request[2] != "";
  EXPECT_GE(continued, 4u);
}

TEST_F(Pull, TakesUpThePartOfAnEarlierCall) {
  const std::string whole = read_file(repository_ / "tiny-f32.gguf");
  fs::create_directories(cached("plain").parent_path());
  write_file(cached("plain").string() + ".partial", whole.substr(0, 1000));
  const Outcome pulled = lemma({"pull", "hf:plain/model"});
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  EXPECT_EQ(requests().back()[2], "bytes=1000-");
  EXPECT_EQ(read_file(cached("plain")), whole);
}

TEST_F(Pull, GivesUpOnAServerThatNeverGetsFurther) {
  const Outcome pulled = lemma({"pull", "hf:deaf/model"});
  EXPECT_EQ(pulled.status, 1);
  EXPECT_THAT(pulled.err, HasSubstr("are kept, the same command goes on from there"));
  EXPECT_FALSE(fs::exists(cached("deaf")));
}

TEST_F(Pull, DeletesWhatIsDamaged) {
  const Outcome pulled = lemma({"pull", "hf:corrupt/model"});
  EXPECT_EQ(pulled.status, 1);
  EXPECT_THAT(pulled.err, HasSubstr("damaged and were deleted"));
  EXPECT_FALSE(fs::exists(cached("corrupt")));
  EXPECT_FALSE(fs::exists(cached("corrupt").string() + ".partial"));
}

TEST_F(Pull, RefusesSizesThatAreNotTrue) {
  const Outcome longer = lemma({"pull", "hf:long/model"});
  EXPECT_EQ(longer.status, 1);
  EXPECT_THAT(longer.err, HasSubstr("more than the"));
  EXPECT_FALSE(fs::exists(cached("long")));
  const Outcome shorter = lemma({"pull", "hf:short/model"});
  EXPECT_EQ(shorter.status, 1);
  EXPECT_FALSE(fs::exists(cached("short")));
}

TEST_F(Pull, SendsTheTokenToTheHubAndToNobodyElse) {
  const Outcome denied = lemma({"pull", "hf:gated/model"});
  EXPECT_EQ(denied.status, 2);
  EXPECT_THAT(denied.err, HasSubstr("HF_TOKEN"));
  ASSERT_EQ(lemma({"pull", "hf:gated/model"}, {"HF_TOKEN=secret"}).status, 0);
  const Outcome moved = lemma({"pull", "hf:moved/model"}, {"HF_TOKEN=secret"});
  ASSERT_EQ(moved.status, 0) << moved.err;
  EXPECT_EQ(requests().back()[0], "localhost");
  EXPECT_EQ(requests().back()[3], "");
  EXPECT_THAT(moved.err, Not(HasSubstr("secret")));
}

TEST_F(Pull, SaysWhatAHubAnswersInstead) {
  const Outcome broken = lemma({"pull", "hf:broken/model"});
  EXPECT_EQ(broken.status, 1);
  EXPECT_THAT(broken.err, HasSubstr("HTTP status 500"));
  const Outcome hostile = lemma({"pull", "hf:hostile/model"});
  EXPECT_EQ(hostile.status, 1);
  EXPECT_THAT(hostile.err, HasSubstr("../../evil.gguf"));
  const Outcome nonsense = lemma({"pull", "hf:nonsense/model"});
  EXPECT_EQ(nonsense.status, 1);
  EXPECT_THAT(nonsense.err, HasSubstr("expected a list of files"));
}

TEST_F(Pull, AsksWhichOfSeveralModels) {
  fs::copy_file(repository_ / "tiny-f32.gguf", repository_ / "tiny-Q8_0.gguf");
  const Outcome several = lemma({"pull", "hf:plain/model"});
  EXPECT_EQ(several.status, 2);
  EXPECT_THAT(several.err, HasSubstr("tiny-Q8_0.gguf, tiny-f32.gguf"));
  const Outcome none = lemma({"pull", "hf:plain/model:Q4_K"});
  EXPECT_THAT(none.err, HasSubstr("no models like 'Q4_K'"));
  EXPECT_EQ(lemma({"pull", "hf:plain/model:q8_0"}).status, 0);
  EXPECT_THAT(lemma({"list"}).out, HasSubstr("hf:plain/model:tiny-Q8_0.gguf"));
}

TEST_F(Pull, FetchesAUrl) {
  const std::string url = "http://127.0.0.1:" + port_ + "/drops/model/resolve/main/tiny-f32.gguf";
  const Outcome pulled = lemma({"pull", url});
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  EXPECT_EQ(lemma({"tokenize", url, "Once upon"}).out, "1 403 407\n");
  const Outcome wrong = lemma({"pull", url + "?2", "--sha256", std::string(64, '0')});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("its SHA-256 is not 000"));
}

TEST_F(Pull, ListsAndRemoves) {
  ASSERT_EQ(lemma({"pull", "hf:plain/model"}).status, 0);
  EXPECT_THAT(lemma({"list"}).out, HasSubstr("hf:plain/model:tiny-f32.gguf"));
  const Outcome removed = lemma({"rm", "hf:plain/model"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_EQ(lemma({"list"}).out, "");
  EXPECT_FALSE(fs::exists(cache_ / "hf"));
  EXPECT_EQ(lemma({"rm", "hf:plain/model"}).status, 1);
  EXPECT_EQ(lemma({"rm", (repository_ / "tiny-f32.gguf").string()}).status, 2);
}

TEST_F(Pull, NoOtherCommandReachesOut) {
  const Outcome outcome = lemma({"tokenize", "hf:plain/model", "text"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("'lemma pull hf:plain/model' gets it"));
  EXPECT_TRUE(requests().empty());
}

TEST_F(Pull, RefusesMalformedNames) {
  for (const char* name :
       {"hf:model", "hf:../model", "hf:a/b/c", "hf:a/b:../c", "hf:a/b@:c", "hf:/b", "https://host",
        "https://host/", "https://me@host/file", "model.gguf"})
    EXPECT_EQ(lemma({"pull", name}).status, 2) << name;
  EXPECT_TRUE(requests().empty());
}

}  // namespace
}  // namespace lemma::test
