// SPDX-License-Identifier: Apache-2.0
// `lemma render`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "program.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class Render : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  const std::string input_ =
      R"({"messages": [{"role": "user", "content": "Grüße\n"}], "bos_token": "<s>"})";
  TemporaryFolder folder_;
};

TEST_F(Render, PrintsThePromptByteForByte) {
  const std::string source =
      file("t.jinja",
           "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}|"
           "{{ strftime_now('%d %b %Y %H:%M:%S') }}\n\n");
  const std::string input = file("in.json", input_);
  const Outcome outcome = run_program({"render", source, input, "--now", "2025-07-04T12:34:56"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "<s>Grüße\n|04 Jul 2025 12:34:56\n");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(run_program({"render", source, "-", "--now", "2025-07-04T12:34:56"}, input_).out,
            outcome.out);
}

TEST_F(Render, FailsWithTheTemplatesOwnWords) {
  const std::string source = file("t.jinja", "a\n{{ raise_exception('roles must alternate') }}");
  const Outcome outcome = run_program({"render", source, file("in.json", input_)});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, EndsWith("t.jinja: line 2, column 19: roles must alternate\n"));
}

TEST_F(Render, FailsForWhatIsNoTemplateOrNoInput) {
  const std::string source = file("t.jinja", "{{ 1 }}"), input = file("in.json", input_);
  Outcome outcome = run_program({"render", file("bad.jinja", "{% if %}"), input});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("bad.jinja: line 1, column 7"));
  outcome = run_program({"render", source, file("bad.json", "{\"a\": ")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("bad.json: not valid JSON"));
  outcome = run_program({"render", source, file("list.json", "[]")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(run_program({"render", source, (folder_ / "none.json").string()}).status, 1);
  outcome = run_program({"render", source, input, "--now", "2025-02-29T00:00:00"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--now"));
}

TEST_F(Render, SaysThatAModelHasNoTemplate) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program({"render", model.string(), file("in.json", input_)});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no chat template"));
}

}  // namespace
}  // namespace lemma::test
