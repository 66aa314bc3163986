// SPDX-License-Identifier: Apache-2.0
// `lemma chat` in a pipe: what a script sees of a conversation.
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
using ::testing::Not;

class Chat : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_file(folder_ / name, text);
    return (folder_ / name).string();
  }
  Outcome chat(const std::filesystem::path& model, std::string_view input,
               const Arguments& more = {}) const {
    Arguments arguments = {"chat", model.string(), "--template", template_, "--temp",
                           "0",    "--max-tokens", "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, input);
  }

  TemporaryFolder folder_;
  const std::string template_ =
      file("t.jinja",
           "{{ bos_token }}{% for m in messages %}"
           "{% if m.content == 'no' %}{{ raise_exception('no is no answer') }}{% endif %}"
           "{{ m.content }}{% if not loop.last %} {% endif %}{% endfor %}");
};

/// A text without the blanks around it, which a chat takes for layout.
std::string bare(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

TEST_F(Chat, SaysWhatAPlainRunOfItsPromptsSays) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = chat(model, "One day\nThe end\n", {"--kv", "f32"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(outcome.err, HasSubstr(" kept; context "));
  const auto plain = [&](const std::string& prompt) {
    return bare(run_program({"run", model.string(), prompt, "--temp", "0", "--max-tokens", "12",
                             "--kv", "f32"})
                    .out);
  };
  const std::string first = plain("One day");
  ASSERT_EQ(bare(outcome.out).substr(0, first.size()), first);
  EXPECT_EQ(bare(bare(outcome.out).substr(first.size())), plain("One day " + first + " The end"));
}

TEST_F(Chat, KeepsWhatTheTemplateLeavesAsItIs) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = chat(model, "One day\n/retry\n");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  // The second time only the last token of the prompt is run, for its logits.
  EXPECT_THAT(outcome.err, HasSubstr("prompt 1 new"));
  const std::string all = bare(outcome.out), half = all.substr(0, all.size() / 2);
  EXPECT_EQ(all, bare(half) + "\n" + bare(half));
}

TEST_F(Chat, TakesAllOfItsInputAsOneMessage) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = chat(model, "One day\n/undo\n", {"--whole"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const Outcome block = chat(model, "\"\"\"One day\n/undo\n\n\"\"\"\n");
  EXPECT_EQ(outcome.out, block.out);
  EXPECT_NE(outcome.out, "");
}

TEST_F(Chat, GoesOnAfterARefusalAndExitsWithOne) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const std::string saved = (folder_ / "saved.json").string();
  const Outcome outcome = chat(model, "One day\nno\n/save " + saved + "\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no is no answer"));
  const auto kept = nlohmann::json::parse(read_file(saved));
  ASSERT_EQ(kept["messages"].size(), 2U);
  EXPECT_EQ(kept["messages"][0]["content"], "One day");
  EXPECT_EQ(kept["messages"][1]["role"], "assistant");
  EXPECT_EQ(bare(kept["messages"][1]["content"]), bare(outcome.out));
}

TEST_F(Chat, LeavesNothingOutWhereTheContextIsTooSmall) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  std::string much;
  for (int i = 0; i < 60; ++i) much += "day ";
  const Outcome outcome = chat(model, "One\n" + much + "\n", {"--ctx", "40"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("and the context holds 40"));
  EXPECT_THAT(outcome.err, HasSubstr("nothing was left out"));
}

TEST_F(Chat, RunsToolsInAPipeOnlyIfToldTo) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const std::string tools = file("tools.json", R"([{"function": {"name": "f"}}])");
  Outcome outcome = chat(model, "", {"--tools", tools});
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("no place for tools"));
  const std::string with =
      file("tools.jinja", "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}");
  outcome = run_program({"chat", model.string(), "--template", with, "--tools", tools}, "");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("tools.json: tool 'f' lacks 'command'"));
}

TEST_F(Chat, AsksForATemplateWhereTheModelHasNone) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const Outcome outcome = run_program({"chat", model.string()}, "Hi\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("no chat template; --template FILE.jinja"));
}

TEST_F(Chat, NeverMakesAControlTokenOfWhatIsTyped) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  const std::string with =
      file("roles.jinja",
           "{{ bos_token }}{% for m in messages %}{{ m.name }}:{{ m.content }}\n{% endfor %}");
  const std::string loaded = file("loaded.json", R"([
    {"role": "system", "content": "<s>"},
    {"role": "user", "content": [{"type": "text", "text": "</"}, {"type": "text", "text": "s>"}]},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
    {"role": "tool", "name": "<unk>", "content": "</s><s>"}])");
  const std::string notes = file("notes", "a </s>\n");
  const Outcome outcome = run_program(
      {"chat", model.string(), "--template", with, "--load", loaded, "--max-tokens", "1"},
      "/file " + notes + "\n<s> b\n");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  // Tokenized as plain text; BOS alone is the template's, or the vocabulary's.
  const std::string text = ":<s>\n:</s>\n:\n<unk>:</s><s>\n:notes:\n\na </s>\n\n<s> b\n";
  const Outcome ids = run_program({"tokenize", model.string(), "-"}, text);
  const auto count = 1 + std::count(ids.out.begin(), ids.out.end(), ' ');
  EXPECT_THAT(outcome.err, HasSubstr("prompt " + std::to_string(count) + " new"));
}

TEST_F(Chat, AnInterruptionEndsTheAnswer) {
  LEMMA_TEST_DATA_OR_SKIP(model, kModel);
  Program program({"chat", model.string(), "--template", template_, "--temp", "0", "--backend",
                   "reference", "--ctx", "100000"},
                  "One day\n");
  EXPECT_NE(program.read_some(), "");
  program.signal(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("stopped"));
}

}  // namespace
}  // namespace lemma::test
