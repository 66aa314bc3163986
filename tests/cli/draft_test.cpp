// SPDX-License-Identifier: Apache-2.0
// Draft blocks as a person meets them: `lemma logits --draft-out` and `lemma show`, with the block
// in the model's file or in a second one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::size_t kVocabulary = 272;

std::string fixture(const std::string& file) {
  return (source_dir() / "tests" / "fixtures" / "data" / "drafts" / file).string();
}

/// The recording of a fixture: token ids, the model's rows and the block's.
struct Recording {
  std::vector<int> tokens;
  std::vector<float> model, draft;
};

std::vector<float> as_floats(const std::string& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

Recording recording(const std::string& name) {
  const std::vector<float> all = as_floats(read_file(fixture(name + ".f32")));
  const std::size_t tokens = (all.size() + kVocabulary) / (2 * kVocabulary + 1);
  const auto rows = all.begin() + static_cast<std::ptrdiff_t>(tokens);
  const auto drafts = rows + static_cast<std::ptrdiff_t>(tokens * kVocabulary);
  return {{all.begin(), rows}, {rows, drafts}, {drafts, all.end()}};
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 5e-5) << i;
}

TEST(DraftLogits, AreWrittenNextToTheModels) {
  const Recording expected = recording("deepseek4");
  const TemporaryFolder folder;
  write_file(folder / "tokens.json", json(expected.tokens).dump());
  const Outcome outcome = run_program(
      {"logits", fixture("deepseek4.gguf"), "--tokens", (folder / "tokens.json").string(), "--out",
       (folder / "model.f32").string(), "--draft", fixture("deepseek4-mtp.gguf"), "--draft-out",
       (folder / "draft.f32").string(), "--cut", "5"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("draft block 0"));
  EXPECT_THAT(outcome.out, HasSubstr("of 20 rows"));
  expect_near(as_floats(read_file(folder / "model.f32")), expected.model);
  expect_near(as_floats(read_file(folder / "draft.f32")), expected.draft);
}

TEST(DraftLogits, OfAModelWithoutABlockAreRefused) {
  const TemporaryFolder folder;
  write_file(folder / "tokens.json", "[1, 5, 9]");
  const Outcome outcome = run_program(
      {"logits", fixture("deepseek4.gguf"), "--tokens", (folder / "tokens.json").string(), "--out",
       (folder / "m").string(), "--draft-out", (folder / "d").string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no draft blocks"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m"));
}

TEST(DraftLogits, RefuseAFileThatWouldHaveNoEffect) {
  const Outcome outcome = run_program({"logits", fixture("deepseek4.gguf"), "--tokens", "t",
                                       "--out", "o", "--draft", fixture("deepseek4-mtp.gguf")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--draft has no effect without --draft-out"));
}

TEST(ShowDraft, DescribesTheBlockOfASecondFile) {
  const std::string model = fixture("deepseek4.gguf");
  EXPECT_THAT(run_program({"show", model}).out, ::testing::Not(HasSubstr("draft block")));
  const Outcome outcome = run_program({"show", model, "--draft", fixture("deepseek4-mtp.gguf")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("draft block 0"));
  EXPECT_THAT(outcome.out, HasSubstr("the last layer's streams"));
  EXPECT_THAT(outcome.out, HasSubstr("deepseek4-mtp.gguf"));
  const Outcome other =
      run_program({"show", fixture("glm4moe.gguf"), "--draft", fixture("deepseek4-mtp.gguf")});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("the draft file is for another model"));
}

}  // namespace
}  // namespace lemma::test
