// SPDX-License-Identifier: Apache-2.0
// Models beside each other: lemma quantize, eval --against, show --verify and --diff.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Compare : public testing::Test {
 protected:
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(model, kModel);
    model_ = model.string();
    std::string story;
    for (int i = 0; i < 12; ++i)
      story += "Once upon a time there was a little dog who liked to play in the park. ";
    write_file(text_, story);
  }
  json eval(const Arguments& more) {
    Arguments all = {"eval", model_, text_, "--json", "--window", "64"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run_program(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out);
  }

  TemporaryFolder folder_;
  std::string model_, text_ = (folder_ / "text").string(), small_ = (folder_ / "q.gguf").string();
};

TEST_F(Compare, AModelDoesNotDifferFromItself) {
  const json result = eval({"--against", model_});
  EXPECT_EQ(result["mean_kl"], 0.0);
  EXPECT_EQ(result["max_kl"], 0.0);
  EXPECT_EQ(result["same_best"], 1.0);
  EXPECT_EQ(result["perplexity"], result["other_perplexity"]);
  EXPECT_NEAR(result["perplexity"].get<double>(), eval({})["perplexity"].get<double>(), 1e-6);
}

TEST_F(Compare, FewerBitsAreFartherAway) {
  ASSERT_EQ(run_program({"quantize", model_, small_, "Q8_0"}).status, 0);
  const json eight = eval({"--against", small_});
  ASSERT_EQ(run_program({"quantize", model_, small_, "Q4_0"}).status, 0);
  const json four = eval({"--against", small_});
  EXPECT_GT(eight["mean_kl"], 0.0);
  EXPECT_LT(eight["mean_kl"], 0.01);
  EXPECT_GT(four["mean_kl"].get<double>(), 4 * eight["mean_kl"].get<double>());
  EXPECT_GT(eight["same_best"], 0.9);
}

TEST_F(Compare, SavedLogitsStandForTheirModel) {
  ASSERT_EQ(run_program({"quantize", model_, small_, "Q4_0"}).status, 0);
  const std::string logits = (folder_ / "logits").string(), lines = (folder_ / "tsv").string();
  ASSERT_EQ(run_program({"eval", small_, text_, "--window", "64", "--save-logits", logits}).status,
            0);
  for (const char* score : {"all", "half"})
    EXPECT_EQ(eval({"--against-logits", logits, "--score", score}),
              eval({"--against", small_, "--score", score}));
  const json result = eval({"--against-logits", logits, "--per-token", lines});
  const std::string table = read_file(lines);
  EXPECT_EQ(std::size_t(std::count(table.begin(), table.end(), '\n')),
            result["scored"].get<std::size_t>() + 1);
  const Outcome other =
      run_program({"eval", model_, text_, "--window", "32", "--against-logits", logits});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("holds logits of other tokens or of other windows"));
}

TEST_F(Compare, AQuantizedModelGoesOnWritingAndSaysWhatItIs) {
  const Outcome made = run_program({"quantize", model_, small_, "Q4_K_M"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("do not hold blocks of 256: Q5_0 instead of Q4_K"));
  const Outcome run =
      run_program({"run", small_, "Once upon a time", "--temp", "0", "--max-tokens", "8"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("there was"));
}

TEST_F(Compare, ImportanceOfTwoTextsIsTheirSum) {
  const std::string half = (folder_ / "half").string(), all = (folder_ / "all").string();
  const Outcome made = run_program({"imatrix", model_, text_, "-o", half, "--window", "64"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("36 matrices"));
  ASSERT_EQ(
      run_program({"imatrix", model_, text_, "-o", all, "--window", "64", "--in", half}).status, 0);
  // Twice the sums over twice the rows are the same means.
  const std::string one = (folder_ / "one.gguf").string();
  ASSERT_EQ(run_program({"quantize", model_, one, "Q4_0", "--imatrix", half}).status, 0);
  ASSERT_EQ(run_program({"quantize", model_, small_, "Q4_0", "--imatrix", all}).status, 0);
  EXPECT_EQ(run_program({"show", one, "--diff", small_, "--json"}).out.find("relative_rms"),
            std::string::npos);
}

TEST_F(Compare, GptqIsNearerToTheSourceOnTextThatItHasNotSeen) {
  const std::string other = (folder_ / "other").string();
  std::string stories;  // the model's own, so that there are enough
  for (const char* begin : {"Once upon a time", "One day, a little boy"})
    for (const char* seed : {"1", "2", "3", "4", "5", "6"})
      stories += run_program(
                     {"run", model_, begin, "--temp", "0.9", "--seed", seed, "--max-tokens", "240"})
                     .out;
  write_file(other, stories);
  const auto divergence = [&] {
    const Outcome outcome = run_program({"eval", small_, text_, "--against", model_, "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out)["mean_kl"].get<double>();
  };
  ASSERT_EQ(run_program({"quantize", model_, small_, "Q4_0"}).status, 0);
  const double plain = divergence();
  const Outcome made =
      run_program({"quantize", model_, small_, "Q4_0", "--gptq", "--calibration", other});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("run 1 times"));
  EXPECT_LT(divergence(), 0.8 * plain);
}

TEST_F(Compare, RefusesWhatGptqCannotDo) {
  const Outcome refused =
      run_program({"quantize", model_, small_, "MXFP4", "--gptq", "--calibration", text_});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("MXFP4 of '"));
  EXPECT_EQ(run_program({"quantize", model_, small_, "Q4_0", "--gptq"}).status, 2);
  EXPECT_EQ(run_program({"quantize", model_, small_, "Q4_0", "--window", "64"}).status, 2);
}

TEST_F(Compare, VerifyReadsEveryTensor) {
  const Outcome whole = run_program({"show", model_, "--verify", "--json"});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(json::parse(whole.out)["bad_tensors"], 0);
  // The last four bytes of the file are a number of its last tensor.
  std::string bytes = read_file(model_);
  bytes.replace(bytes.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));
  write_file(folder_ / "bad.gguf", bytes);
  const Outcome bad = run_program({"show", (folder_ / "bad.gguf").string(), "--verify"});
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.out, HasSubstr("NOT FINITE in 1 rows"));
  EXPECT_THAT(bad.err, HasSubstr("1 of "));
}

TEST_F(Compare, DiffNamesWhatIsNotTheSame) {
  const Outcome same = run_program({"show", model_, "--diff", model_});
  EXPECT_EQ(same.status, 0) << same.out;
  EXPECT_EQ(same.out, "");
  ASSERT_EQ(run_program({"quantize", model_, small_, "Q8_0"}).status, 0);
  const Outcome other = run_program({"show", model_, "--diff", small_, "--json"});
  EXPECT_EQ(other.status, 1);
  const json result = json::parse(other.out);
  EXPECT_GT(result["equal"], 0);  // the norms
  for (const json& tensor : result["tensors"]) {
    // Rows of 172 elements hold no blocks of 32.
    EXPECT_THAT(tensor["other_format"].get<std::string>(), ::testing::AnyOf("Q8_0", "F16"));
    EXPECT_LT(tensor["relative_rms"], 0.01);
  }
  EXPECT_THAT(result["keys"].dump(), HasSubstr("lemma.quantize.recipe: only in the second"));
}

TEST_F(Compare, RefusesWhatItCannotCompare) {
  EXPECT_EQ(run_program({"quantize", model_, small_, "Q9"}).status, 2);
  EXPECT_EQ(run_program({"quantize", model_, model_, "Q8_0"}).status, 2);
  EXPECT_EQ(run_program({"eval", model_, text_, "--per-token", "x"}).status, 2);
  EXPECT_EQ(run_program({"eval", model_, text_, "--against", "nowhere.gguf"}).status, 1);
}

}  // namespace
}  // namespace lemma::test
