// SPDX-License-Identifier: Apache-2.0
// `lemma run`: published texts, streaming, and how a run ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using ::testing::HasSubstr;

/// What a generation adds to its prompt. The file's text has the blank in front that the vocabulary
/// puts before every text; it is neither part of the prompt nor, with an empty prompt, of the
/// generated text.
std::string added_text(const nlohmann::json& generation) {
  const std::string text = generation["text"], prompt = generation["prompt"];
  EXPECT_EQ(text.substr(0, 1 + prompt.size()), " " + prompt);
  return text.substr(1 + prompt.size());
}

class Run : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, Run, ::testing::Values("reference", "cpu"),
                         [](const auto& backend) { return backend.param; });

TEST_P(Run, PrintsThePublishedGreedyTexts) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  LEMMA_TEST_DATA_OR_SKIP(greedy, "goldens/stories260K/greedy.json");
  const auto golden = nlohmann::json::parse(read_file(greedy));
  for (const auto& generation : golden["generations"]) {
    const std::string prompt = generation["prompt"];
    const Outcome outcome = run_program({"run", model.string(), prompt, "--temp", "0",
                                         "--max-tokens", "120", "--backend", GetParam()});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, added_text(generation)) << prompt;
  }
}

TEST_P(Run, TakesAnAbsentPromptAsTheEmptyOne) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome =
      run_program({"run", model.string(), "--temp", "0", "--backend", GetParam()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out.substr(0, 52), "Once upon a time, there was a little girl named Lily");
}

TEST(RunPrompt, IsReadFromStandardInputByteForByte) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  // A final line break and a zero byte are part of the prompt.
  for (const std::string& prompt : {std::string("One day\n"), std::string("One\0 day", 8)}) {
    const Outcome ids = run_program({"tokenize", model.string(), "-"}, prompt);
    const Outcome text = run_program({"detokenize", model.string(), "-"}, ids.out);
    EXPECT_EQ(text.out, prompt);
    const Outcome run = run_program({"run", model.string(), "-", "--max-tokens", "1"}, prompt);
    const auto count = 1 + std::count(ids.out.begin(), ids.out.end(), ' ');
    EXPECT_THAT(run.err, HasSubstr("prefill  " + std::to_string(count) + " tokens"));
  }
}

TEST(RunPrompt, MayBeAnything) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  // The name of a command, brackets, and options behind "--".
  for (const Arguments& prompt : std::vector<Arguments>{{"check"}, {"[a,b]"}, {"--", "--temp"}}) {
    Arguments arguments = {"run", "-m", model.string(), "--max-tokens", "1"};
    arguments.insert(arguments.end(), prompt.begin(), prompt.end());
    const Outcome ids = run_program({"tokenize", model.string(), "-"}, prompt.back());
    const auto count = 1 + std::count(ids.out.begin(), ids.out.end(), ' ');
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("prefill  " + std::to_string(count) + " tokens"));
  }
}

TEST(RunPrompt, WarnsOfADoubledBos) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome =
      run_program({"run", model.string(), "<s>Once", "--parse-special", "--max-tokens", "1"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("BOS twice"));
}

TEST(RunPrompt, ThatDoesNotFitIsAnErrorWithBothNumbers) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program({"run", model.string(), "Once upon a time", "--ctx", "4"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("5 tokens"));
  EXPECT_THAT(outcome.err, HasSubstr("context holds 4"));
}

TEST(RunEnd, IsAStopTextThatIsNotPrinted) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome =
      run_program({"run", model.string(), "--temp", "0", "--stop", "xyz", "--stop", "girl named"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "Once upon a time, there was a little ");
  EXPECT_THAT(outcome.err, HasSubstr("stop text"));
}

TEST(RunEnd, ComesWithStatisticsOnStandardError) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program({"run", model.string(), "--max-tokens", "5"});
  for (const char* word : {"prefill", "decode", "memory", "backend", "seed"})
    EXPECT_THAT(outcome.err, HasSubstr(word));
}

TEST(RunSampling, RepeatsWithTheSameSeed) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Arguments arguments = {"run", model.string(), "--seed", "42", "--max-tokens", "60"};
  const Outcome first = run_program(arguments), second = run_program(arguments);
  EXPECT_EQ(first.out, second.out);
  Arguments other = arguments;
  other[3] = "43";
  EXPECT_NE(run_program(other).out, first.out);
}

/// Thousands of tokens on the reference backend: long after the first bytes it is still at it.
Arguments long_run(const std::filesystem::path& model) {
  return {"run", model.string(), "--temp", "0", "--ctx", "8000", "--backend", "reference"};
}

TEST(RunStream, GivesItsFirstBytesWhileItIsStillRunning) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  Program program(long_run(model));
  const std::string first = program.read_some();
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(program.running());
  EXPECT_TRUE(std::string_view("Once upon a time, there was a little girl named Lily.")
                  .starts_with(first.substr(0, 20)))
      << first;
}

TEST(RunStream, EndsWhenItsReaderClosesThePipe) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  Program program(long_run(model));
  EXPECT_FALSE(program.read_some().empty());
  program.close_output();
  EXPECT_EQ(program.wait().status, 0);
}

TEST(RunStream, IsCancelledByCtrlC) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  Program program(long_run(model));
  EXPECT_FALSE(program.read_some().empty());
  program.signal(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cancelled"));
}

}  // namespace
}  // namespace lemma::test
