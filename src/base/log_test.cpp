// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lemma::base {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { set_log_sink({}); }
  LogSink collector() {
    return [this](LogLevel level, std::string_view text) {
      lines_.push_back(std::string(to_string(level)) + " " + std::string(text));
    };
  }
  std::vector<std::string> lines_;
};

TEST_F(LogTest, PrintsNothingWithoutASink) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  log(LogLevel::kError, "lost {}", 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_FALSE(log_enabled(LogLevel::kError));
}

TEST_F(LogTest, HandsFormattedMessagesToTheSink) {
  set_log_sink(collector());
  log(LogLevel::kWarning, "{} of {}", 2, "three");
  EXPECT_EQ(lines_, std::vector<std::string>{"warning 2 of three"});
}

TEST_F(LogTest, LeavesOutMessagesBelowTheLeastLevel) {
  set_log_sink(collector(), LogLevel::kWarning);
  log(LogLevel::kInfo, "quiet");
  log_message(LogLevel::kInfo, "quiet too");
  log(LogLevel::kError, "loud");
  EXPECT_EQ(lines_, std::vector<std::string>{"error loud"});
}

TEST_F(LogTest, StopsWhenTheSinkIsRemoved) {
  set_log_sink(collector());
  set_log_sink({});
  log(LogLevel::kError, "late");
  EXPECT_TRUE(lines_.empty());
}

}  // namespace
}  // namespace lemma::base
