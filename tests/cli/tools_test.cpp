// SPDX-License-Identifier: Apache-2.0
// The other commands: tokenize, detokenize, logits, show, check, bench, eval.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kLogProbabilities = "goldens/stories260K/logprobs.json";

TEST(Tokenize, PrintsIdsOnALine) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  EXPECT_EQ(run_program({"tokenize", model.string(), "Once upon"}).out, "1 403 407\n");
  EXPECT_EQ(run_program({"tokenize", model.string(), "Once upon", "--no-special"}).out,
            "403 407\n");
  EXPECT_EQ(run_program({"tokenize", model.string()}).out, "1\n");
}

TEST(Tokenize, TakesControlTokensFromTextOnlyWhenAsked) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome text = run_program({"tokenize", model.string(), "</s>", "--no-special"});
  EXPECT_NE(text.out, "2\n");
  const Outcome token =
      run_program({"tokenize", model.string(), "</s>", "--no-special", "--parse-special"});
  EXPECT_EQ(token.out, "2\n");
}

TEST(Tokenize, JsonHasIdsAndPiecesInThisOrder) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  EXPECT_EQ(run_program({"tokenize", model.string(), "Once upon", "--json"}).out,
            "{\"ids\":[1,403,407],\"pieces\":[\"<s>\",\" Once\",\" upon\"]}\n");
}

TEST(Tokenize, JsonShowsAPieceThatIsNoUtf8AsBytes) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program(
      {"tokenize", model.string(), "\xe4\xbd\xa0", "--json", "--no-special"});  // U+4F60
  const auto pieces = json::parse(outcome.out)["pieces"];
  EXPECT_EQ(pieces, json::parse(R"([" ",[228],[189],[160]])"));
}

TEST(PreTokenizer, IsChosenForEveryCommandThatLoadsAModel) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  // This vocabulary has none to choose, so that the choice is refused wherever it arrives.
  const std::string path = model.string();
  for (const Arguments& command : std::vector<Arguments>{{"run", path, "Hi"},
                                                         {"chat", path},
                                                         {"explain", path, "Hi"},
                                                         {"show", path},
                                                         {"check", path},
                                                         {"bench", path},
                                                         {"eval", path, path},
                                                         {"detokenize", path, "1"},
                                                         {"capture", path, "--list"}}) {
    Arguments arguments = command;
    arguments.insert(arguments.end(), {"--pre", "qwen2"});
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 2) << command[0];
    EXPECT_THAT(outcome.err, HasSubstr("pre-tokenizer")) << command[0];
  }
}

TEST(Detokenize, GivesTheBytesExactly) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const std::string text = " two  blanks\n\xe4\xbd\xa0\xff end ";
  const Outcome ids = run_program({"tokenize", model.string(), "-"}, text);
  Arguments arguments = {"detokenize", model.string()};
  for (const auto& id : json::parse("[" + [&] {
         std::string list = ids.out;
         for (char& c : list) c = c == ' ' ? ',' : c;
         return list;
       }() + "]"))
    arguments.push_back(id.dump());
  const Outcome back = run_program(arguments);
  EXPECT_EQ(back.status, 0);
  EXPECT_EQ(back.out, text);
}

TEST(Detokenize, RefusesAnIdOutsideTheVocabulary) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program({"detokenize", model.string(), "512"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("512"));
}

std::vector<float> as_floats(const std::string& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

/// `lemma logits` on the golden text; the file's bytes.
std::string logits_of(const std::filesystem::path& model, const json& golden,
                      const Arguments& options) {
  const TemporaryFolder folder;
  write_file(folder / "tokens.json", golden["ids"].dump());
  Arguments arguments = {"logits",   model.string(),
                         "--tokens", (folder / "tokens.json").string(),
                         "--out",    (folder / "rows.f32").string()};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome outcome = run_program(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  return read_file(folder / "rows.f32");
}

class Logits : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, Logits, ::testing::Values("reference", "cpu"),
                         [](const auto& backend) { return backend.param; });

TEST_P(Logits, GiveTheLogProbabilitiesOfAnIndependentEngine) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  LEMMA_TEST_DATA_OR_SKIP(file, kLogProbabilities);
  const json golden = json::parse(read_file(file));
  const std::vector<float> rows = as_floats(logits_of(model, golden, {"--backend", GetParam()}));
  const auto ids = golden["ids"].get<std::vector<std::size_t>>();
  ASSERT_EQ(rows.size(), ids.size() * 512);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const float* const row = rows.data() + i * 512;
    double sum = 0;
    for (int t = 0; t < 512; ++t) sum += std::exp(double(row[t]));
    const double log_probability = double(row[ids[i + 1]]) - std::log(sum);
    ASSERT_NEAR(log_probability, golden["logprobs"][i].get<double>(),
                golden["tolerance_logprob"].get<double>())
        << i;
  }
}

TEST_P(Logits, HaveTheSameBitsHoweverTheTokensAreCut) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  LEMMA_TEST_DATA_OR_SKIP(file, kLogProbabilities);
  const json golden = json::parse(read_file(file));
  const std::string whole = logits_of(model, golden, {"--backend", GetParam()});
  for (const Arguments& how :
       std::vector<Arguments>{{"--cut", "20,28"}, {"--stepwise"}, {"--generated-from", "100"}}) {
    Arguments options = {"--backend", GetParam()};
    options.insert(options.end(), how.begin(), how.end());
    EXPECT_TRUE(logits_of(model, golden, options) == whole) << how[0];
  }
}

TEST(LogitsFile, HoldsTheLastHiddenStateIfAsked) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  LEMMA_TEST_DATA_OR_SKIP(file, kLogProbabilities);
  const json golden = json::parse(read_file(file));
  const std::string hidden = logits_of(model, golden, {"--hidden"});
  EXPECT_EQ(hidden.size(), golden["ids"].size() * 64 * sizeof(float));
  EXPECT_TRUE(logits_of(model, golden, {"--hidden", "--cut", "7"}) == hidden);
}

TEST(LogitsFile, IsLeftAsItWasWhenTheWorkFails) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const TemporaryFolder folder;
  write_file(folder / "rows.f32", "before");
  for (const char* tokens : {"[1, 512]", "[1, 2.5]", "{}", "[1,", "[]", "[-1]"}) {
    write_file(folder / "tokens.json", tokens);
    const Outcome outcome =
        run_program({"logits", model.string(), "--tokens", (folder / "tokens.json").string(),
                     "--out", (folder / "rows.f32").string()});
    EXPECT_NE(outcome.status, 0) << tokens;
    EXPECT_NE(outcome.err, "");
    EXPECT_EQ(read_file(folder / "rows.f32"), "before");
  }
}

TEST(Show, TellsPlanMemoryAndImplementations) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program({"show", model.string(), "--ctx", "256"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* word : {"llama.block_count", "layers 0-4", "state", "attend", "hardware"})
    EXPECT_THAT(outcome.out, HasSubstr(word));
}

TEST(Show, NeedsNoTokenizer) {
  const std::string folder = (source_dir() / "tests/safetensors/data/llama").string();
  const Outcome shown = run_program({"show", folder});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("tokenizer none was found"));
  const Outcome run = run_program({"run", folder, "Hi"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("no tokenizer was found"));
}

TEST(Show, JsonPutsTheFormulaBesideWhatIsAllocated) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program({"show", model.string(), "--json", "--ctx", "256"});
  const json shown = json::parse(outcome.out);
  // 2 x 5 layers x 256 tokens x 4 KV heads x 8 wide x 2 bytes.
  EXPECT_EQ(shown["state"]["formula_bytes"], 2 * 5 * 256 * 4 * 8 * 2);
  EXPECT_GE(shown["state"]["allocated_bytes"], shown["state"]["formula_bytes"]);
  EXPECT_EQ(shown["plan"]["layers"].size(), 5U);
  for (const auto& operation : shown["operations"])
    EXPECT_EQ(operation["implementation"].get<std::string>().substr(0, 3), "cpu");
}

TEST(Show, PrintsTheBytesOfARowInFp8WhereTheArchitectureDefinesIt) {
  LEMMA_TEST_DATA_OR_SKIP(dense, kModel);
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/deepseek4/model.gguf");
  const Outcome outcome = run_program({"show", model.string(), "--kv", "fp8"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  // Rows of 32 with 16 turned dims: 16 codes, a scale and 16 f16; index rows of 64 in four bits.
  EXPECT_THAT(outcome.out, HasSubstr("x 49 bytes (32 fp8 and 1 scales, the last 16 f16)"));
  EXPECT_THAT(outcome.out, HasSubstr("x 34 bytes (64 fp4 and 2 scales)"));
  const Outcome refused = run_program({"show", dense.string(), "--kv", "fp8"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("defines no fp8 rows"));
}

TEST(Check, PassesOnBothBackends) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  for (const char* backend : {"cpu", "reference"}) {
    const Outcome outcome = run_program({"check", model.string(), "--json", "--backend", backend});
    EXPECT_EQ(outcome.status, 0) << outcome.out;
    const json report = json::parse(outcome.out);
    EXPECT_EQ(report["passed"], true);
    EXPECT_EQ(report["logits"]["same_best"], report["logits"]["positions"]);
    EXPECT_EQ(report["sites"].back()["site"], "logits");
    EXPECT_GT(report["sites"].size(), 50U);
  }
}

TEST(Check, PassesWithTeacherForcingOnAModelWithLargeScores) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program({"check", model.string(), "--teacher-forced", "--sites"});
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("layers.4.attention.heads"));
  EXPECT_THAT(outcome.out, HasSubstr("passed"));
}

TEST(Check, ComparesSoManyTokensAndTheLayersThatWereAskedFor) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome =
      run_program({"check", model.string(), "--tokens", "200", "--layers", "1..2", "--sites"});
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_THAT(outcome.out, testing::StartsWith("200 tokens"));
  EXPECT_THAT(outcome.out, HasSubstr("layers.1.attention.heads"));
  EXPECT_THAT(outcome.out, HasSubstr("layers.2.ffn.output"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("layers.0.")));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("layers.3.")));
  const Outcome beyond = run_program({"check", model.string(), "--layers", "4..5"});
  EXPECT_EQ(beyond.status, 2);
  EXPECT_THAT(beyond.err, HasSubstr("layers 0..4"));
  EXPECT_EQ(run_program({"check", model.string(), "--layers", "3..2"}).status, 2);
  EXPECT_EQ(run_program({"check", model.string(), "--tokens", "9", "--text", "short"}).status, 2);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Check, TakesNoMoreMemoryForALongerText) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const auto peak = [&](const char* tokens) {
    const Outcome outcome = run_program(
        {"check", model.string(), "--tokens", tokens, "--ctx", "512", "--threads", "1", "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.peak_kib;
  };
  // The rows of all sites of 448 more tokens would take about 6 MiB.
  EXPECT_LT(peak("512"), peak("64") + 3 * 1024);
}
#endif

TEST(Bench, ComparesWithTheReferenceBeforeItMeasures) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program(
      {"bench", model.string(), "--prompt", "16", "--generate", "4", "--reps", "2", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["decode"]["tokens_per_second"].size(), 2U);
  EXPECT_LE(result["check"]["of_tolerance"].get<double>(), 1.0);
  EXPECT_GT(result["decode"]["bytes_per_token"].get<double>(), 1e6);
}

TEST(Bench, CountsTheBytesOfChosenExpertsAlone) {
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/gpt-oss/model.gguf");  // 3 of 8 experts
  const auto bytes = [&](const char* sequences) {
    const Outcome outcome = run_program({"bench", model.string(), "--prompt", "8", "--generate",
                                         "4", "--reps", "1", "--json", "--sequences", sequences});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out)["decode"]["bytes_per_token"].get<double>();
  };
  // Three sequences read all 8 experts of each layer between them, one its own 3.
  const double one = bytes("1"), three = bytes("3");
  EXPECT_GT(3 * three, one + 200e3);
}

TEST(Bench, SaysHowManyExpertsInTheFileWereForeseen) {
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/gpt-oss/model.gguf");
  const auto bench = [&](std::vector<std::string> more) {
    std::vector<std::string> args{"bench", model.string(), "--prompt", "8",     "--generate",
                                  "12",    "--reps",       "1",        "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = run_program(args);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out);
  };
  EXPECT_FALSE(bench({}).contains("experts"));
  const json experts = bench({"--memory", "1"})["experts"];
  EXPECT_GT(experts["bytes_in_file"].get<std::uint64_t>(), 0U);
  EXPECT_GE(experts["chosen"].get<std::uint64_t>(), 12U * 3U * 2U);
  EXPECT_GT(experts["foreseen"].get<std::uint64_t>(), 0U);
  EXPECT_LE(experts["foreseen"].get<std::uint64_t>(), experts["chosen"].get<std::uint64_t>());
}

TEST(Bench, RefusesMoreThanTheContextHolds) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program({"bench", model.string(), "--prompt", "500"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("500"));
  EXPECT_THAT(outcome.err, HasSubstr("512"));
}

TEST(Eval, GivesThePerplexityOfAnIndependentEngine) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  LEMMA_TEST_DATA_OR_SKIP(file, kLogProbabilities);
  const json golden = json::parse(read_file(file));
  const TemporaryFolder folder;
  // The golden's ids are the first 200 tokens of its text.
  std::string ids;
  for (const auto& id : golden["ids"]) ids += id.dump() + " ";
  write_file(folder / "text.txt", run_program({"detokenize", model.string(), "-"}, ids).out);
  const Outcome outcome =
      run_program({"eval", model.string(), (folder / "text.txt").string(), "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  ASSERT_EQ(result["scored"], golden["logprobs"].size());
  EXPECT_NEAR(result["mean_nll"].get<double>(), golden["mean_nll"].get<double>(), 1e-4);
}

TEST(Eval, ScoresTheSecondHalvesOfWholeWindowsIfAsked) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  LEMMA_TEST_DATA_OR_SKIP(file, kLogProbabilities);
  const json golden = json::parse(read_file(file));
  const TemporaryFolder folder;
  write_file(folder / "text.txt", golden["text"].get<std::string>());
  const Outcome outcome = run_program({"eval", model.string(), (folder / "text.txt").string(),
                                       "--json", "--window", "64", "--score", "half"});
  const json result = json::parse(outcome.out);
  const std::size_t windows = result["tokens"].get<std::size_t>() / 64;
  EXPECT_EQ(result["windows"], windows);
  EXPECT_EQ(result["scored"], windows * 31);
}

}  // namespace
}  // namespace lemma::test
