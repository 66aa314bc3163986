// SPDX-License-Identifier: Apache-2.0
#include "cli/interruption.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/raise.hpp"

namespace lemma::cli {
namespace {

constexpr char kSignalled = 's', kQuit = 'q';

/// Where the signal handler writes; -1 while there is no Interruption.
std::atomic<int> signal_pipe{-1};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void on_signal(int) {
  const int saved = errno;
  const int file = signal_pipe.load();
  if (file >= 0) static_cast<void>(!::write(file, &kSignalled, 1));
  errno = saved;
}

void set_handler(void (*handler)(int), Interruption::Again again) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // The second signal finds the default action, which ends the process.
  const bool ends = again == Interruption::Again::kEndsProcess;
  action.sa_flags = (ends ? static_cast<int>(SA_RESETHAND) : 0) | SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  if (ends) ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

Interruption::Interruption(std::function<void(Cause)> callback, Again again)
    : callback_(std::move(callback)), again_(again) {
  if (::pipe2(pipe_, O_CLOEXEC) != 0)
    base::raise(ErrorKind::kIo, "cannot make a pipe: {}", std::strerror(errno));
  signal_pipe = pipe_[1];
  thread_ = std::thread([this] { watch(); });
  set_handler(on_signal, again_);
}

Interruption::~Interruption() {
  set_handler(SIG_DFL, again_);
  signal_pipe = -1;
  static_cast<void>(!::write(pipe_[1], &kQuit, 1));
  thread_.join();
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

void Interruption::watch() const {
  // With no events asked for, poll() still tells of POLLERR: the pipe's reader has closed it.
  pollfd files[] = {{pipe_[0], POLLIN, 0}, {STDOUT_FILENO, 0, 0}};
  bool told = false;
  for (;;) {
    if (::poll(files, told ? 1 : 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (files[0].revents != 0) {
      char what = kQuit;
      if (::read(pipe_[0], &what, 1) != 1 || what == kQuit) return;
      if (!told) callback_(Cause::kSignal);
      told = true;
    } else if (files[1].revents != 0) {
      if ((files[1].revents & (POLLERR | POLLHUP)) != 0) callback_(Cause::kOutputClosed);
      told = true;  // and look at stdout no more
    }
  }
}

}  // namespace lemma::cli
