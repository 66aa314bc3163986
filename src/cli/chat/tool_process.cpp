// SPDX-License-Identifier: Apache-2.0
// A tool's program: started without a shell in a process group of its own, fed and read at the same
// time, ended with its group.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/utf8.hpp"
#include "cli/chat/tools.hpp"

extern char** environ;

namespace lemma::cli::chat {
namespace {

/// More than any context holds; what a program prints beyond it is counted and left out.
constexpr std::size_t kMostOutput = 256 << 10;
constexpr int kStopCheckMilliseconds = 50;

/// One end of a pipe, closed with it.
class End {
 public:
  End() = default;
  ~End() { close(); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  void close() {
    if (file >= 0) ::close(file);
    file = -1;
  }
  int file = -1;
};

struct Pipe {
  End read, write;
  bool open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    read.file = ends[0];
    write.file = ends[1];
    return true;
  }
};

/// write(2) to a pipe whose reader may be gone: EPIPE and no signal, whatever the process does
/// about signals.
ssize_t write_quietly(int file, std::string_view bytes) {
  sigset_t pipe_signal, before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t done = ::write(file, bytes.data(), bytes.size());
  const int error = errno;
  if (done < 0 && error == EPIPE) {
    const timespec at_once{};
    ::sigtimedwait(&pipe_signal, nullptr, &at_once);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return done;
}

struct Output {
  std::string text;
  std::size_t left_out = 0;

  void take(std::string_view more) {
    const std::size_t room = kMostOutput - text.size();
    text += more.substr(0, room);
    left_out += more.size() - std::min(room, more.size());
  }
};

class Process {
 public:
  /// 0, or the system's error.
  int start(const std::vector<std::string>& command) {
    if (!in_.open() || !out_.open() || !err_.open()) return errno;
    ::fcntl(in_.write.file, F_SETFL, O_NONBLOCK);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in_.read.file, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_.write.file, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_.write.file, STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGPIPE, SIGINT}) sigaddset(&defaults, signal);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const int error =
        ::posix_spawnp(&child_, words[0], &actions, &attributes, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    in_.read.close();
    out_.write.close();
    err_.write.close();
    return error;
  }

  /// Feeds and reads until both outputs are closed. False: stopped.
  bool run(std::string_view input, const std::stop_token& stop) {
    if (input.empty()) in_.write.close();
    while (out_.read.file >= 0 || err_.read.file >= 0) {
      std::array<pollfd, 3> files = {
          {{in_.write.file, POLLOUT, 0}, {out_.read.file, POLLIN, 0}, {err_.read.file, POLLIN, 0}}};
      ::poll(files.data(), files.size(), kStopCheckMilliseconds);
      if (stop.stop_requested()) return false;
      if (files[0].revents != 0) feed(input);
      if (files[1].revents != 0) drain(out_.read, out);
      if (files[2].revents != 0) drain(err_.read, err);
    }
    return true;
  }

  /// The status of the ended program. A stop, then or before, ends it with its group.
  int wait(const std::stop_token& stop) {
    int status = 0;
    for (;;) {
      if (stop.stop_requested()) ::kill(-child_, SIGKILL);
      const pid_t ended = ::waitpid(child_, &status, WNOHANG);
      if (ended == child_ || (ended < 0 && errno != EINTR)) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  Output out, err;

 private:
  void feed(std::string_view& input) {
    const ssize_t done = write_quietly(in_.write.file, input);
    if (done > 0) input.remove_prefix(static_cast<std::size_t>(done));
    if ((done < 0 && errno != EAGAIN && errno != EINTR) || input.empty()) in_.write.close();
  }

  static void drain(End& end, Output& output) {
    std::array<char, 16384> block;
    const ssize_t got = ::read(end.file, block.data(), block.size());
    if (got > 0)
      output.take({block.data(), static_cast<std::size_t>(got)});
    else if (got == 0 || errno != EINTR)
      end.close();
  }

  Pipe in_, out_, err_;
  pid_t child_ = -1;
};

std::string text_of(const Output& output) {
  std::string text = base::repair_utf8(output.text);
  if (output.left_out > 0) text += fmt::format("\n[{} more bytes were left out]", output.left_out);
  return text;
}

}  // namespace

ToolResult run_tool(const std::vector<std::string>& command, std::string_view input,
                    std::stop_token stop) {
  Process process;
  if (const int error = process.start(command); error != 0)
    return {fmt::format("error: '{}' cannot be started: {}", command[0], std::strerror(error))};
  const bool finished = process.run(input, stop);
  const int status = process.wait(stop);
  if (!finished || stop.stop_requested()) return {"error: stopped by the user", false, true};
  const std::string text = text_of(process.out);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {text, true};
  const std::string how = WIFSIGNALED(status) ? fmt::format("ended by signal {}", WTERMSIG(status))
                                              : fmt::format("exit status {}", WEXITSTATUS(status));
  return {fmt::format("error: {}\n{}{}", how, text, text_of(process.err))};
}

}  // namespace lemma::cli::chat
