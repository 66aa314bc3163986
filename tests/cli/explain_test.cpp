// SPDX-License-Identifier: Apache-2.0
// `lemma explain`: two models side by side, and the three forms of an explanation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const Arguments kRest = {"Once upon a time there was",
                         "--temp",
                         "0.9",
                         "--seed",
                         "7",
                         "--max-tokens",
                         "4",
                         "--threads",
                         "1"};

Outcome explain(const std::filesystem::path& model, const Arguments& more = {}) {
  Arguments arguments = {"explain", model.string()};
  arguments.insert(arguments.end(), kRest.begin(), kRest.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  Outcome outcome = run_program(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome;
}

bool has_digit(const std::string& line) {
  return std::any_of(line.begin(), line.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Lines with a number, apart from those that say what both runs were given (the prompt's tokens,
/// since both models have one vocabulary, the backend, the seed) and from times.
std::set<std::string> numbers(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (has_digit(line) && line.find(" entered") == std::string::npos &&
        line.find(" ms") == std::string::npos && !line.starts_with("backend") &&
        !line.starts_with("seed"))
      lines.insert(line);
  return lines;
}

// The two of a pair differ in width, heads and layers, so no number may be the same by rote.
TEST(Explain, OfTwoModelsHasNoLineOfNumbersInCommon) {
  const std::pair<const char*, const char*> pairs[] = {{"qwen3moe", "minimax-m3"},
                                                       {"llama-gqa", "kimi-linear"},
                                                       {"qwen3moe", "qwen3next"},
                                                       {"deepseek2-v2lite-kvb", "gemma4-moe"}};
  const auto path = [](const char* name) { return std::string("goldens/") + name + "/model.gguf"; };
  for (const auto& [name, other] : pairs) {
    LEMMA_TEST_DATA_OR_SKIP(one, path(name));
    LEMMA_TEST_DATA_OR_SKIP(two, path(other));
    const auto first = numbers(explain(one).out), second = numbers(explain(two).out);
    EXPECT_GT(first.size(), 40u) << name;
    EXPECT_GT(second.size(), 40u) << other;
    std::vector<std::string> common;
    std::set_intersection(first.begin(), first.end(), second.begin(), second.end(),
                          std::back_inserter(common));
    EXPECT_THAT(common, ::testing::IsEmpty()) << name << " and " << other;
  }
}

TEST(Explain, GeneratesWhatRunGenerates) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const json found = json::parse(explain(model, {"--json"}).out);
  std::string text;
  for (const auto& token : found["tokens"])
    if (token["class"] == "generated") text += token["piece"];
  Arguments arguments = {"run", model.string()};
  arguments.insert(arguments.end(), kRest.begin(), kRest.end());
  arguments.insert(arguments.end(), {"--kv", "f32"});
  EXPECT_EQ(run_program(arguments).out, text);
}

TEST(Explain, JsonHoldsTheShapesAndTheExpertsOfTheModel) {
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/qwen3moe/model.gguf");
  const json show = json::parse(run_program({"show", model.string(), "--json"}).out);
  const json found = json::parse(explain(model, {"--json"}).out);
  EXPECT_EQ(found["layers"].size(), show["plan"]["layers"].size());
  EXPECT_EQ(found["parameters"], show["parameters"]);
  const std::size_t prompt = found["prompt_tokens"];
  EXPECT_EQ(found["shapes"][0]["shape"], "[" + std::to_string(prompt) + "] ids -> [" +
                                             std::to_string(prompt) + ", " +
                                             std::to_string(std::size_t(found["width"])) + "]");
  for (const auto& layer : found["layers"]) {
    const auto& experts = layer["experts"][0];
    EXPECT_EQ(experts["last_token"].size(), experts["chosen"]);
    EXPECT_EQ(experts["use"].size(), experts["experts"]);
  }
  EXPECT_EQ(found["steps"][0]["tokens"], prompt);
  EXPECT_GT(found["steps"][0]["milliseconds"], 0.0);
}

TEST(Explain, PageIsOneFileThatNeedsNoOther) {
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/qwen3moe/model.gguf");
  const TemporaryFolder folder;
  const std::string path = (folder / "way.html").string();
  explain(model, {"--html", path});
  const std::string page = read_file(path);
  for (const char* outside : {"http:", "https:", "src=", "url(", "@import", "<script", "<link"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  for (const char* part :
       {"<svg", "attention map of layers.0.attention", "use of experts by layer",
        "lengths of rows by layer", "candidates: top-k", "bytes of state", "prefers-color-scheme"})
    EXPECT_THAT(page, HasSubstr(part));
  const auto count = [&](const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = page.find(what); at != std::string::npos; at = page.find(what, at + 1))
      ++n;
    return n;
  };
  for (const char* tag : {"svg", "div", "table", "text", "tr", "td"})
    EXPECT_EQ(count("<" + std::string(tag) + ">") + count("<" + std::string(tag) + " "),
              count("</" + std::string(tag) + ">"))
        << tag;
}

TEST(Explain, EscapesWhatAPromptHolds) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const TemporaryFolder folder;
  const std::string path = (folder / "way.html").string();
  const Outcome outcome =
      run_program({"explain", model.string(), "<script>&\n", "--max-tokens", "1", "--html", path});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::string page = read_file(path);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_THAT(outcome.out, HasSubstr("'\\n'"));
}

TEST(Explain, RefusesAPromptThatIsTooLong) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  std::string prompt;
  for (int i = 0; i < 400; ++i) prompt += "girl ";
  const Outcome outcome = run_program({"explain", model.string(), "-"}, prompt);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("at most 256"));
}

}  // namespace
}  // namespace lemma::test
