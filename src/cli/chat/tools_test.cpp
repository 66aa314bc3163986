// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/tools.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lemma/error.hpp"

namespace lemma::cli::chat {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string message_of(std::string_view json) {
  try {
    Tools::parse(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Tools, NamesWhatIsWrongWithAFile) {
  EXPECT_THAT(message_of("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("{}"), HasSubstr("expected a list"));
  EXPECT_THAT(message_of("[3]"), HasSubstr("tool 1"));
  const std::string one = R"({"function": {"name": "f"}, "command": ["x"]})";
  EXPECT_EQ(message_of("[" + one + "]"), "");
  EXPECT_THAT(message_of("[" + one + "," + one + "]"), HasSubstr("'f' stands twice"));
  EXPECT_THAT(message_of(R"([{"function": {"name": "f"}}])"), HasSubstr("lacks 'command'"));
  EXPECT_THAT(message_of(R"([{"function": {"name": "f"}, "command": "ls -l"}])"),
              HasSubstr("list of strings"));
}

TEST(Tools, GiveTheirInputToAProgramWithoutAShell) {
  const ToolResult result = run_tool({"cat"}, "a $(b) `c`\n", {});
  EXPECT_TRUE(result.ok);
  EXPECT_EQ(result.text, "a $(b) `c`\n");
}

TEST(Tools, FeedAndReadAtTheSameTime) {
  // More than a pipe holds, both ways.
  const std::string much(200'000, 'x');
  EXPECT_EQ(run_tool({"cat"}, much, {}).text, much);
}

TEST(Tools, OutliveAProgramThatDoesNotReadItsInput) {
  const std::string more_than_a_pipe_holds(200'000, 'x');
  EXPECT_TRUE(run_tool({"sh", "-c", "exec <&-; sleep 0.1"}, more_than_a_pipe_holds, {}).ok);
}

TEST(Tools, SayHowAProgramFailed) {
  EXPECT_THAT(run_tool({"/no/such/program"}, "", {}).text, StartsWith("error: '/no/such/program'"));
  const ToolResult result = run_tool({"sh", "-c", "echo out; echo err >&2; exit 3"}, "{}", {});
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.text, "error: exit status 3\nout\nerr\n");
}

TEST(Tools, CountWhatTheyLeaveOut) {
  const ToolResult result = run_tool({"head", "-c", "300000", "/dev/zero"}, "", {});
  EXPECT_THAT(result.text, HasSubstr("[37856 more bytes were left out]"));
}

TEST(Tools, EndWithAllThatTheyStartedWhenStopped) {
  std::stop_source stop;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop.request_stop();
  });
  const ToolResult result = run_tool({"sh", "-c", "sleep 1000 & wait"}, "", stop.get_token());
  later.join();
  EXPECT_TRUE(result.stopped);
}

}  // namespace
}  // namespace lemma::cli::chat
