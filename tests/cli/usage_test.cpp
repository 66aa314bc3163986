// SPDX-License-Identifier: Apache-2.0
// Wrong usage, damaged files, and what they say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using ::testing::HasSubstr;

TEST(Usage, WithoutArgumentsIsHelpOnStandardErrorAndStatusTwo) {
  const Outcome outcome = run_program({});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("usage: lemma COMMAND"));
}

TEST(Usage, HelpThatIsAskedForIsAResult) {
  for (const Arguments& arguments : std::vector<Arguments>{{"--help"},
                                                           {"run", "--help"},
                                                           {"tokenize", "--help"},
                                                           {"detokenize", "--help"},
                                                           {"logits", "--help"},
                                                           {"show", "--help"},
                                                           {"check", "--help"},
                                                           {"bench", "--help"},
                                                           {"eval", "--help"},
                                                           {"capture", "--help"},
                                                           {"explain", "--help"}}) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, HasSubstr("example: lemma"));
  }
  EXPECT_THAT(run_program({"--version"}).out, HasSubstr("lemma "));
}

TEST(Usage, RefusesWhatItDoesNotKnow) {
  for (const Arguments& arguments : std::vector<Arguments>{{"fly"},
                                                           {"run"},
                                                           {"run", "x.gguf", "--bogus"},
                                                           {"run", "x.gguf", "prompt", "more"},
                                                           {"run", "-m", "x.gguf", "a", "b"},
                                                           {"tokenize"},
                                                           {"tokenize", "x.gguf", "a", "b"},
                                                           {"detokenize", "x.gguf"},
                                                           {"detokenize", "x.gguf", "seven"},
                                                           {"logits", "x.gguf"},
                                                           {"show", "x.gguf", "y.gguf"},
                                                           {"--help", "run"}}) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments.back();
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("--help"));
  }
}

TEST(Usage, RefusesValuesOutOfRange) {
  for (const Arguments& option : std::vector<Arguments>{{"--temp", "-1"},
                                                        {"--temp", "nan"},
                                                        {"--temp", "1e999"},
                                                        {"--top-p", "1.5"},
                                                        {"--min-p", "-0.1"},
                                                        {"--top-k", "4.5"},
                                                        {"--max-tokens", "0"},
                                                        {"--ctx", "0"},
                                                        {"--seed", "-1"},
                                                        {"--threads", "0x2"},
                                                        {"--stop", ""},
                                                        {"--kv", "f8"},
                                                        {"--backend", "gpu"},
                                                        {"--numerics", "loose"},
                                                        {"--memory", "0"},
                                                        {"--memory", "GiB"},
                                                        {"--memory", "3GB"},
                                                        {"--memory", "2000000TiB"},
                                                        {"--temp", "1", "--temp", "2"}}) {
    Arguments arguments = {"run", "x.gguf"};
    arguments.insert(arguments.end(), option.begin(), option.end());
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 2) << option[0] << " " << option[1];
    EXPECT_THAT(outcome.err, HasSubstr(option[0]));
  }
}

TEST(Usage, NamesTheUnitsOfASize) {
  const Outcome outcome = run_program({"run", "x.gguf", "--memory", "3GB"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::AllOf(HasSubstr("KiB, MiB, GiB or TiB"), HasSubstr("'3GB'")));
}

TEST(Usage, RefusesOptionsWithoutEffect) {
  for (const Arguments& arguments : std::vector<Arguments>{
           {"run", "x.gguf", "--temp", "0", "--top-k", "5"},
           {"run", "x.gguf", "--temp", "0", "--seed", "5"},
           {"logits", "x.gguf", "--tokens", "t", "--out", "o", "--cut", "2", "--stepwise"},
           {"check", "x.gguf", "--text", "a", "--tokens", "t"}}) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("has no effect with"));
  }
}

// All commands take the machine's options; where one changes nothing, it is said and the work goes
// on.
TEST(Usage, ReportsOptionsOfTheMachineThatChangeNothing) {
  for (const Arguments& arguments : std::vector<Arguments>{
           {"run", "/no/such/x.gguf", "--backend", "reference", "--threads", "2"},
           {"run", "/no/such/x.gguf", "--backend", "reference", "--numerics", "fast"},
           {"run", "/no/such/x.gguf", "--backend", "reference", "--no-repack"},
           {"tokenize", "/no/such/x.gguf", "a", "--memory", "4GiB"},
           {"tokenize", "/no/such/x.gguf", "a", "--backend", "cpu"},
           {"detokenize", "/no/such/x.gguf", "1", "--kv", "f32"}}) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, HasSubstr("has no effect"));
    EXPECT_THAT(outcome.err, HasSubstr("/no/such/x.gguf"));
  }
}

TEST(Usage, NamesAMissingFile) {
  for (const char* command : {"run", "tokenize", "show", "check", "bench"}) {
    const Outcome outcome = run_program({command, "/no/such/model.gguf"});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("/no/such/model.gguf"));
  }
}

TEST(Usage, SaysHowManyBytesATruncatedModelLacks) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const TemporaryFolder folder;
  const std::string whole = read_file(model);
  write_file(folder / "cut.gguf", std::string_view(whole).substr(0, whole.size() - 1000));
  const Outcome outcome = run_program({"run", (folder / "cut.gguf").string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("1000 bytes"));
  EXPECT_THAT(outcome.err, HasSubstr("cut.gguf"));
}

TEST(Usage, TakesAFolderThatHoldsOneModel) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Arguments arguments = {"tokenize", model.parent_path().string(), "Once"};
  EXPECT_EQ(run_program(arguments).out, "1 403\n");
}

}  // namespace
}  // namespace lemma::test
