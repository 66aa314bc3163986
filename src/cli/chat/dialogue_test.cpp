// SPDX-License-Identifier: Apache-2.0
// A chat without a terminal and without a model: lines and answers are scripted.
#include "cli/chat/dialogue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "lemma/error.hpp"

namespace lemma::cli::chat {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Script final : public LineReader {
 public:
  Line read(std::string_view prompt) override {
    prompts += prompt;
    if (lines.empty()) return {Line::Kind::kEnd, {}};
    Line line = std::move(lines.front());
    lines.pop_front();
    return line;
  }
  std::deque<Line> lines;
  std::string prompts;
};

/// Says what it was asked, unless the script has something else in store.
class Parrot final : public Speaker {
 public:
  Answer answer(const Question& question, const Show& show, std::stop_token stop) override {
    asked.push_back(question.conversation);
    Answer answer;
    answer.message.role = Role::kAssistant;
    answer.context_used = 10 * question.conversation.messages.size();
    if (script.empty()) {
      std::string text = "you said: ";
      for (const std::string& part : question.conversation.messages.back().parts) text += part;
      answer.message.parts = {text};
    } else {
      const auto next = std::move(script.front());
      script.pop_front();
      next(answer);
    }
    if (stop.stop_requested()) answer.ending = Ending::kStopped;
    if (!answer.message.reasoning.empty())
      show({ChatEvent::Kind::kReasoning, answer.message.reasoning, {}});
    for (const std::string& part : answer.message.parts)
      show({ChatEvent::Kind::kContent, part, {}});
    for (const ToolCall& call : answer.message.tool_calls)
      show({ChatEvent::Kind::kToolCall, "", call});
    return answer;
  }
  std::size_t count_tokens(std::string_view text) const override { return text.size(); }
  const ChatCapabilities& capabilities() const noexcept override { return can; }
  ModelInfo info() const override {
    ModelInfo info;
    info.context = 100;
    info.trained_context = 400;
    return info;
  }

  std::vector<Conversation> asked;
  std::deque<std::function<void(Answer&)>> script;
  ChatCapabilities can{.system = true, .tools = true};
};

class DialogueTest : public ::testing::Test {
 protected:
  /// Types these lines and ends the input.
  bool type(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) script_.lines.push_back({Line::Kind::kText, line});
    return dialogue_.run();
  }
  void interrupt(const std::string& typed = {}) {
    script_.lines.push_back({Line::Kind::kInterrupted, typed});
  }
  std::string file(const std::string& name, const std::string& text) {
    const auto path = std::filesystem::path(::testing::TempDir()) / ("lemma-chat-" + name);
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  std::vector<std::string> said() const {
    std::vector<std::string> texts;
    for (const Message& message : dialogue_.messages())
      texts.push_back(message.parts.empty() ? "" : message.parts[0]);
    return texts;
  }

  Script script_;
  Parrot parrot_;
  std::string out_, err_;
  View view_{{},
             [this](std::string_view text) { out_ += text; },
             [this](std::string_view text) { err_ += text; }};
  std::stop_source stop_;
  Settings quiet_{.statistics = false};
  Dialogue dialogue_{{.lines = script_,
                      .view = view_,
                      .speaker = parrot_,
                      .stoppable = [this](const auto& turn) { turn(stop_.get_token()); },
                      .interactive = true},
                     quiet_};
};

TEST_F(DialogueTest, KeepsTheHistory) {
  EXPECT_TRUE(type({"a", "", "b"}));
  EXPECT_EQ(out_, "you said: a\nyou said: b\n");
  EXPECT_THAT(said(), ElementsAre("a", "you said: a", "b", "you said: b"));
  ASSERT_EQ(parrot_.asked.size(), 2U);
  EXPECT_EQ(parrot_.asked[1].messages.size(), 3U);
}

TEST_F(DialogueTest, JoinsLines) {
  EXPECT_TRUE(type({"a\\", "b", "c\\\\", "\"\"\"x", "/no command", "", "y\"\"\"", "\"\"\"", "z",
                    "\"\"\"", "//etc"}));
  std::vector<std::string> asked;
  for (const Conversation& one : parrot_.asked) asked.push_back(one.messages.back().parts[0]);
  EXPECT_THAT(asked, ElementsAre("a\nb", "c\\", "x\n/no command\n\ny", "z", "/etc"));
}

TEST_F(DialogueTest, SaysThatAMessageWasNotClosed) {
  EXPECT_FALSE(type({"\"\"\"x", "y"}));
  EXPECT_THAT(err_, HasSubstr("ended inside a message"));
  EXPECT_THAT(parrot_.asked, IsEmpty());
}

TEST_F(DialogueTest, TakesBackAndAnswersAnew) {
  type({"a", "b", "/undo", "/retry", "/undo"});
  EXPECT_EQ(out_, "you said: a\nyou said: b\nyou said: a\n");
  EXPECT_THAT(said(), IsEmpty());
  EXPECT_THAT(err_, HasSubstr("taken back: b"));
  EXPECT_FALSE(type({"/undo"}));
  EXPECT_THAT(err_, HasSubstr("no turn to go back to"));
}

TEST_F(DialogueTest, ClearsAllButTheSystemMessage) {
  type({"/system Be brief.", "a", "/clear", "/system", "b", "/system none", "c"});
  EXPECT_THAT(said(), ElementsAre("b", "you said: b", "c", "you said: c"));
  ASSERT_EQ(parrot_.asked.size(), 3U);
  EXPECT_EQ(parrot_.asked[1].messages[0].role, Role::kSystem);
  EXPECT_EQ(parrot_.asked[1].messages.size(), 2U);
  EXPECT_THAT(err_, HasSubstr("Be brief."));
}

TEST_F(DialogueTest, RefusesASystemMessageThatTheTemplateWouldDrop) {
  parrot_.can.system = false;
  EXPECT_FALSE(type({"/system x"}));
  EXPECT_THAT(err_, HasSubstr("no place for a system message"));
}

TEST_F(DialogueTest, SavesAndLoads) {
  const std::string path = file("saved.json", "");
  parrot_.script.push_back([](Answer& answer) {
    answer.message.parts = {"Grüße"};
    answer.message.reasoning = "hm";
  });
  type({"a", "/save " + path, "/clear", "/load " + path});
  EXPECT_THAT(said(), ElementsAre("a", "Grüße"));
  EXPECT_EQ(dialogue_.messages()[1].reasoning, "hm");
  EXPECT_FALSE(type({"/load " + file("bad.json", R"([{"role": "user", "content": 3}])")}));
  EXPECT_THAT(err_, HasSubstr("message 1: 'content'"));
  EXPECT_THAT(said(), ElementsAre("a", "Grüße"));
}

TEST_F(DialogueTest, AFailedTurnLeavesTheHistoryAsItWas) {
  type({"a"});
  parrot_.script.push_back(
      [](Answer&) { throw Error(ErrorKind::kTemplate, "roles must alternate"); });
  EXPECT_FALSE(type({"b"}));
  EXPECT_THAT(err_, HasSubstr("lemma: roles must alternate"));
  EXPECT_THAT(said(), ElementsAre("a", "you said: a"));
}

TEST_F(DialogueTest, SaysWhatFitsWhereAMessageDoesNot) {
  type({"a"});
  parrot_.script.push_back([](Answer&) {
    throw Error(ErrorKind::kContextFull,
                "the conversation takes 120 tokens and the context holds "
                "100");
  });
  EXPECT_FALSE(type({"b"}));
  EXPECT_THAT(err_, HasSubstr("takes 120 tokens and the context holds 100"));
  EXPECT_THAT(err_, HasSubstr("holds 10 tokens, so that about 90 fit"));
  EXPECT_THAT(err_, HasSubstr("/undo"));
  EXPECT_THAT(err_, HasSubstr("made for 400"));
  EXPECT_THAT(said(), ElementsAre("a", "you said: a"));
}

TEST_F(DialogueTest, AStoppedAnswerStaysAndAStoppedMessageIsTakenBack) {
  stop_.request_stop();
  type({"a"});
  EXPECT_THAT(said(), ElementsAre("a", "you said: a"));
  parrot_.script.push_back([](Answer&) {});
  type({"b"});
  EXPECT_THAT(said(), ElementsAre("a", "you said: a"));
  EXPECT_THAT(err_, HasSubstr("as it was"));
}

TEST_F(DialogueTest, LeavesAtTheSecondInterruptionInARow) {
  interrupt("half a line");
  interrupt();
  script_.lines.push_back({Line::Kind::kText, "a"});
  interrupt();
  interrupt();
  script_.lines.push_back({Line::Kind::kText, "never read"});
  EXPECT_TRUE(dialogue_.run());
  EXPECT_THAT(said(), ElementsAre("a", "you said: a"));
  EXPECT_EQ(script_.lines.size(), 1U);
}

TEST_F(DialogueTest, ChangesSettings) {
  type({"/set temperature 0", "/set max_tokens 7", "/set reasoning off", "/set"});
  EXPECT_THAT(err_, HasSubstr("temperature         0 "));
  EXPECT_FALSE(view_.look.reasoning);
  EXPECT_FALSE(type({"/set temperature nan", "/set top_p 2", "/set thinking on", "/set x 1"}));
  EXPECT_THAT(err_, HasSubstr("temperature: expected a number from 0 to 100, found 'nan'"));
  EXPECT_THAT(err_, HasSubstr("top_p: expected a number from 0 to 1, found '2'"));
  EXPECT_THAT(err_, HasSubstr("no switch for thinking"));
  EXPECT_THAT(err_, HasSubstr("what can: temperature, top_k"));
}

TEST_F(DialogueTest, PutsFilesInFrontOfTheNextMessage) {
  const std::string path = file("notes.txt", "line\n");
  type({"/file " + path, "what is it?", "and now?"});
  EXPECT_EQ(said()[0], "lemma-chat-notes.txt:\n\nline\n\nwhat is it?");
  EXPECT_EQ(said()[2], "and now?");
  EXPECT_FALSE(type({"/file " + file("bytes", "\xff\xfe")}));
  EXPECT_THAT(err_, HasSubstr("no UTF-8"));
}

TEST_F(DialogueTest, NamesWhatIsNoCommand) {
  EXPECT_FALSE(type({"/frobnicate", "/undo now"}));
  EXPECT_THAT(err_, HasSubstr("there is no /frobnicate"));
  EXPECT_THAT(err_, HasSubstr("/undo takes no arguments"));
  EXPECT_TRUE(parrot_.asked.empty());
}

constexpr const char* kArguments = R"j({"x": "$(id)"})j";

class ToolDialogueTest : public DialogueTest {
 protected:
  ToolDialogueTest() {
    dialogue_.set_tools(file("tools.json", R"([{"type": "function", "command": ["cat"],
      "function": {"name": "echo", "parameters": {"type": "object", "properties": {}}}}])"));
    parrot_.script.push_back([](Answer& answer) {
      answer.message.tool_calls = {{"", "echo", kArguments}};
    });
  }
};

TEST_F(ToolDialogueTest, RunsACallThatIsAllowedAndFeedsItsResultBack) {
  EXPECT_TRUE(type({"a", "maybe", "y"}));
  EXPECT_THAT(script_.prompts, HasSubstr("run cat?"));
  ASSERT_EQ(dialogue_.messages().size(), 4U);
  const Message& result = dialogue_.messages()[2];
  EXPECT_EQ(result.role, Role::kTool);
  EXPECT_EQ(result.parts[0], kArguments);
  EXPECT_EQ(result.tool_call_id, dialogue_.messages()[1].tool_calls[0].id);
  EXPECT_EQ(result.tool_call_id.size(), 9U);
  EXPECT_THAT(parrot_.asked[0].tools, HasSubstr("echo"));
  EXPECT_THAT(parrot_.asked[0].tools, Not(HasSubstr("command")));
}

TEST_F(ToolDialogueTest, TellsTheModelThatACallWasNotAllowed) {
  type({"a", "n"});
  EXPECT_THAT(said(), ElementsAre("a", "", "error: the user did not allow this call",
                                  "you said: error: the user did not allow this call"));
}

TEST_F(ToolDialogueTest, AnInterruptionAtTheQuestionEndsTheTurn) {
  script_.lines.push_back({Line::Kind::kText, "a"});
  interrupt();
  dialogue_.run();
  EXPECT_EQ(dialogue_.messages().size(), 3U);
  EXPECT_EQ(parrot_.asked.size(), 1U);
}

TEST_F(ToolDialogueTest, AsksNoMoreAfterAlways) {
  parrot_.script.push_back([](Answer& answer) {
    answer.message.tool_calls = {{"", "echo", "{}"}, {"", "none", "{}"}};
  });
  type({"a", "a"});
  EXPECT_THAT(said(), ElementsAre("a", "", kArguments, "", "{}", "error: there is no tool 'none'",
                                  "you said: error: there is no tool 'none'"));
}

TEST_F(DialogueTest, ShowsACallThatNoToolCouldAnswer) {
  parrot_.script.push_back([](Answer& answer) {
    answer.message.tool_calls = {{"", "f", R"({"n": 1})"}};
  });
  type({"a"});
  EXPECT_THAT(said(), ElementsAre("a", R"j(f({"n": 1}))j"));
  EXPECT_TRUE(dialogue_.messages()[1].tool_calls.empty());
}

}  // namespace
}  // namespace lemma::cli::chat
