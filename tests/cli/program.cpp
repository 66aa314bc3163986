// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace lemma::test {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// A file without a name that holds `input`, at its start.
int input_file(std::string_view input) {
  std::string name = (std::filesystem::temp_directory_path() / "lemma-input-XXXXXX").string();
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) fail("mkostemp");
  ::unlink(name.c_str());
  if (::write(file, input.data(), input.size()) != ssize_t(input.size())) fail("write");
  ::lseek(file, 0, SEEK_SET);
  return file;
}

int exit_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Program::Program(const Arguments& arguments, std::string_view input)
    : Program(LEMMA_PROGRAM, arguments, {}, input) {}

Program::Program(const std::string& program, const Arguments& arguments,
                 const Arguments& environment, std::string_view input) {
  std::string err = (std::filesystem::temp_directory_path() / "lemma-err-XXXXXX").string();
  const int err_file = ::mkostemp(err.data(), O_CLOEXEC);
  if (err_file < 0) fail("mkostemp");
  err_ = err;
  const int in = input_file(input);
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0) fail("pipe2");

  std::vector<const char*> argv = {program.c_str()};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(nullptr);
  std::vector<const char*> env;
  for (char** entry = environ; *entry; ++entry) env.push_back(*entry);
  for (const std::string& entry : environment) env.push_back(entry.c_str());
  env.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) fail("fork");
  if (pid_ == 0) {
    ::dup2(in, STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err_file, STDERR_FILENO);
    ::execve(program.c_str(), const_cast<char* const*>(argv.data()),
             const_cast<char* const*>(env.data()));
    ::_exit(127);
  }
  ::close(in);
  ::close(err_file);
  ::close(out[1]);
  out_ = out[0];
}

Program::~Program() {
  close_output();
  if (running()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove(err_, ignored);
}

std::string Program::read_some() {
  std::array<char, 4096> block;
  ssize_t got = 0;
  do got = ::read(out_, block.data(), block.size());
  while (got < 0 && errno == EINTR);
  if (got < 0) fail("read");
  return std::string(block.data(), std::size_t(got));
}

void Program::close_output() {
  if (out_ >= 0) ::close(out_);
  out_ = -1;
}

void Program::signal(int number) const {
  ::kill(pid_, number);
}

bool Program::running() {
  if (status_ >= 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == 0) return true;
  status_ = exit_status(status);
  return false;
}

Outcome Program::wait() {
  if (status_ < 0) {
    int status = 0;
    rusage usage{};
    while (::wait4(pid_, &status, 0, &usage) < 0)
      if (errno != EINTR) fail("wait4");
    status_ = exit_status(status);
    peak_kib_ = usage.ru_maxrss;
  }
  return {status_, {}, read_file(err_), peak_kib_};
}

namespace {

Outcome run_to_end(Program& program) {
  std::string out;
  for (std::string some = program.read_some(); !some.empty(); some = program.read_some())
    out += some;
  Outcome outcome = program.wait();
  outcome.out = std::move(out);
  return outcome;
}

}  // namespace

Outcome run_program(const Arguments& arguments, std::string_view input) {
  Program program(arguments, input);
  return run_to_end(program);
}

Outcome run_program_at(const std::string& path, const Arguments& arguments,
                       const Arguments& environment) {
  Program program(path, arguments, environment, {});
  return run_to_end(program);
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "lemma-test-XXXXXX").string();
  if (!::mkdtemp(name.data())) fail("mkdtemp");
  path_ = name;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), std::streamsize(bytes.size()));
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace lemma::test
