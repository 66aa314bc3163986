// SPDX-License-Identifier: Apache-2.0
// `lemma run` with a form that the text must have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using ::testing::HasSubstr;

TEST(RunConstrained, GivesJsonOfASchemaFromTextAndFromAFile) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const std::string schema =
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},)"
      R"( "age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["name", "age"]})";
  const TemporaryFolder folder;
  const auto file = folder / "schema.json";
  write_file(file, schema);
  std::string before;
  for (const std::string& given : {schema, file.string()}) {
    const Outcome outcome =
        run_program({"run", model.string(), "Lily", "--temp", "0", "--json-schema", given});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto value = nlohmann::json::parse(outcome.out);
    EXPECT_TRUE(value.at("name").is_string());
    EXPECT_GE(value.at("age"), 1);
    EXPECT_LE(value.at("age"), 9);
    EXPECT_TRUE(before.empty() || before == outcome.out);
    before = outcome.out;
  }
}

TEST(RunConstrained, KeepsToAGrammar) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const TemporaryFolder folder;
  const auto file = folder / "grammar.gbnf";
  write_file(file, "root ::= (\" \"? [A-Z]{2} \"-\" [0-9]{3} \";\"){2}");
  const Outcome outcome =
      run_program({"run", model.string(), "Lily", "--seed", "1", "--grammar", file.string()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex("( ?[A-Z][A-Z]-[0-9][0-9][0-9];){2}"));
}

TEST(RunConstrained, RefusesAFaultyFormNamingThePlace) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program(
      {"run", model.string(), "x", "--json-schema", R"({"properties": {"a": {"not": {}}}})"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("#/properties/a/not"));
}

TEST(RunConstrained, RefusesOptionsWithoutEffect) {
  for (const Arguments& options :
       {Arguments{"--json", "--grammar", "g"}, Arguments{"--json-compact"},
        Arguments{"--constrain-after", "x"}}) {
    Arguments arguments = {"run", "model.gguf", "x"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
  }
}

}  // namespace
}  // namespace lemma::test
