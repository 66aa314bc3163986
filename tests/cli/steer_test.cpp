// SPDX-License-Identifier: Apache-2.0
// Steering end to end: two sets of prompts, a file of vectors, and a text that they change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using ::testing::HasSubstr;

class Steer : public ::testing::Test {
 protected:
  /// A steering file from sad prompts against happy ones.
  Outcome make(const std::string& model, const Arguments& more = {}) {
    write_file(folder_ / "sad.txt", "She was very sad and cried\n\nThe boy was sad\r\n");
    write_file(folder_ / "happy.txt", "She was very happy and laughed\nThe boy was happy");
    Arguments arguments = {"capture",
                           model,
                           "--steer-from",
                           (folder_ / "sad.txt").string(),
                           (folder_ / "happy.txt").string(),
                           "--out",
                           file()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }
  std::string file() const { return (folder_ / "steer.safetensors").string(); }
  Outcome run(const std::string& model, const Arguments& more) {
    Arguments arguments = {"run", model, "One day", "--temp", "0", "--max-tokens", "40"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }
  const TemporaryFolder folder_;
};

TEST_F(Steer, ChangesTheTextAndWithFactorsOfZeroDoesNot) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome made = make(model.string());
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("2 against 2 prompts"));
  const std::string plain = run(model.string(), {}).out;
  const Outcome zero =
      run(model.string(), {"--steer", file(), "--steer-ffn", "0", "--steer-attn", "0"});
  EXPECT_EQ(zero.status, 0) << zero.err;
  EXPECT_EQ(zero.out, plain);
  const std::string steered = run(model.string(), {"--steer", file(), "--steer-ffn", "8"}).out;
  EXPECT_NE(steered, plain);
  EXPECT_NE(run(model.string(), {"--steer", file(), "--steer-attn", "8"}).out, steered);
}

TEST_F(Steer, TakesTheRowsAndSitesThatWereAskedFor) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  EXPECT_EQ(make(model.string()).status, 0);
  const std::string last = read_file(file());
  EXPECT_EQ(make(model.string(), {"--rows", "all"}).status, 0);
  EXPECT_NE(read_file(file()), last);
  EXPECT_EQ(make(model.string(), {"--sites", "layers.2.ffn.output"}).status, 0);
  EXPECT_EQ(run(model.string(), {"--steer", file(), "--steer-ffn", "1"}).status, 0);
  const Outcome idle = run(model.string(), {"--steer", file(), "--steer-attn", "1"});
  EXPECT_EQ(idle.status, 2);
  EXPECT_THAT(idle.err, HasSubstr("no effect"));
}

TEST_F(Steer, RefusesFactorsWithoutAFileAndFilesOfOtherModels) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  LEMMA_TEST_DATA_OR_SKIP(other, "goldens/qwen3moe/model.gguf");
  const Outcome alone = run(model.string(), {"--steer-ffn", "2"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("no effect without --steer"));
  EXPECT_EQ(make(other.string()).status, 0);
  EXPECT_EQ(run(model.string(), {"--steer", file()}).status, 2);
  write_file(folder_ / "steer.safetensors", "no such thing");
  EXPECT_EQ(run(model.string(), {"--steer", file()}).status, 1);
  EXPECT_EQ(run(model.string(), {"--steer", file(), "--steer-ffn", "nan"}).status, 2);
}

TEST_F(Steer, NeedsPromptsInBothFiles) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  write_file(folder_ / "empty.txt", "\n\n");
  write_file(folder_ / "one.txt", "One day\n");
  const Outcome outcome =
      run_program({"capture", model.string(), "--steer-from", (folder_ / "one.txt").string(),
                   (folder_ / "empty.txt").string(), "--out", file()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("empty.txt"));
}

}  // namespace
}  // namespace lemma::test
