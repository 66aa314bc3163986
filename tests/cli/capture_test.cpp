// SPDX-License-Identifier: Apache-2.0
// `lemma capture`: sites, files, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json header_of(const std::string& file) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return json::parse(file.substr(sizeof length, length));
}

TEST(Capture, ListsTheSitesWithTheirWidths) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome all = run_program({"capture", model.string(), "--list"});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("      64  embedding\n"));
  EXPECT_THAT(all.out, HasSubstr("      64  layers.4.ffn.stream\n"));
  const Outcome some =
      run_program({"capture", model.string(), "--list", "--sites", "layers.*.ffn.output"});
  EXPECT_EQ(some.out.find("attention"), std::string::npos);
  EXPECT_EQ(std::count(some.out.begin(), some.out.end(), '\n'), 5);
}

TEST(Capture, WritesAFileThatAnyReaderOfSafetensorsCanRead) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const TemporaryFolder folder;
  const std::string out = (folder / "x.safetensors").string();
  const Outcome outcome = run_program({"capture", model.string(), "--text", "Once upon a time",
                                       "--sites", "layers.*.ffn.output,final_norm", "--out", out});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const json header = header_of(read_file(out));
  EXPECT_EQ(header.size(), 8u);  // five layers, final_norm, tokens, metadata
  EXPECT_EQ(header["final_norm"]["dtype"], "F32");
  EXPECT_EQ(header["final_norm"]["shape"], json({5, 64}));
  EXPECT_EQ(header["tokens"]["shape"], json({5}));
  EXPECT_EQ(header["__metadata__"]["architecture"], "llama");
}

TEST(Capture, GivesTheRowsThatLogitsHiddenGives) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const TemporaryFolder folder;
  write_file(folder / "ids.json", "[1, 403, 407, 261, 378]");
  const std::string ids = (folder / "ids.json").string();
  run_program({"logits", model.string(), "--tokens", ids, "--hidden", "--out",
               (folder / "hidden.f32").string()});
  run_program({"capture", model.string(), "--tokens", ids, "--sites", "final_norm", "--out",
               (folder / "x.safetensors").string()});
  const std::string hidden = read_file(folder / "hidden.f32");
  const std::string file = read_file(folder / "x.safetensors");
  ASSERT_EQ(hidden.size(), 5u * 64 * 4);
  EXPECT_NE(file.find(hidden), std::string::npos);
}

TEST(Capture, RefusesWhatIsUnknownOrWithoutEffect) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const auto error = [&](Arguments arguments) {
    arguments.insert(arguments.begin(), {"capture", model.string()});
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(error({"--text", "a", "--sites", "layers.*.nothing", "--out", "x"}),
              HasSubstr("layers.*.nothing"));
  EXPECT_THAT(error({"--list", "--out", "x"}), HasSubstr("no effect with --list"));
  EXPECT_THAT(error({"--text", "a", "--sites", "*", "--rows", "all", "--out", "x"}),
              HasSubstr("--rows has no effect"));
  EXPECT_THAT(error({"--text", "a", "--out", "x"}), HasSubstr("--sites"));
  EXPECT_THAT(error({"--sites", "*", "--out", "x"}), HasSubstr("--text or --tokens"));
  EXPECT_THAT(error({"--text", "a", "--sites", "*"}), HasSubstr("--out"));
  EXPECT_THAT(error({"--steer-from", "a", "b", "--text", "c", "--out", "x"}),
              HasSubstr("no effect with --steer-from"));
}

TEST(Capture, WritesTheRoutesOfExpertsAndSaysWhatAPredictorMakesOfThem) {
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/gpt-oss/model.gguf");
  const TemporaryFolder folder;
  const std::string file = (folder / "routes").string();
  const Outcome outcome = run_program({"capture", model.string(), "--routes", "--out", file,
                                       "--text", "the cat and the dog and the cat and the dog"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, testing::HasSubstr("3 layers, 3 of 8 experts each"));
  EXPECT_THAT(outcome.err, testing::HasSubstr("by frequency alone"));
  EXPECT_EQ(read_file(file).substr(0, 8), "lemroute");
  const Outcome both = run_program(
      {"capture", model.string(), "--routes", "--sites", "*", "--out", file, "--text", "a"});
  EXPECT_EQ(both.status, 2);
}

TEST(Run, ReadsExpertsAheadWithoutChangingTheText) {
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/gpt-oss/model.gguf");
  LEMMA_TEST_DATA_OR_SKIP(dense, kModel);
  const Arguments plain = {"run", model.string(), "the cat", "--temp", "0", "--max-tokens", "20"};
  Arguments ahead = plain;
  ahead.insert(ahead.end(), {"--prefetch-experts", "4"});
  const Outcome outcome = run_program(ahead);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, run_program(plain).out);
  const Outcome refused =
      run_program({"run", dense.string(), "a", "--prefetch-experts", "4", "--max-tokens", "1"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, testing::HasSubstr("no experts"));
}

}  // namespace
}  // namespace lemma::test
