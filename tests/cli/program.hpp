// SPDX-License-Identifier: Apache-2.0
// The built program as a test sees it: arguments and standard input in; both outputs and the exit
// status back. `Program` is one that runs, for tests of what happens in between.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::test {

/// The real model that most of these tests run, in the test data.
inline constexpr const char* kModel = "models/stories260K-f32.gguf";

using Arguments = std::vector<std::string>;

struct Outcome {
  int status = -1;  ///< exit status, or 128 + the signal that ended it
  std::string out, err;
  long peak_kib = 0;  ///< the most memory that was resident
};

/// Runs `lemma` to its end.
Outcome run_program(const Arguments& arguments, std::string_view input = {});
/// Another program instead, with `environment` ("NAME=value") added to that of the test.
Outcome run_program_at(const std::string& path, const Arguments& arguments,
                       const Arguments& environment);

/// A running `lemma` whose standard output is a pipe to here; its standard error goes to a file.
class Program {
 public:
  explicit Program(const Arguments& arguments, std::string_view input = {});
  Program(const std::string& program, const Arguments& arguments, const Arguments& environment,
          std::string_view input);
  ~Program();  ///< ends it
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Waits for output and returns what is there; empty at its end.
  std::string read_some();
  void close_output();
  void signal(int number) const;
  bool running();
  /// Waits for the end. Unread output stays unread.
  Outcome wait();

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int status_ = -1;
  long peak_kib_ = 0;
  std::filesystem::path err_;
};

/// A folder that lives as long as this.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace lemma::test
