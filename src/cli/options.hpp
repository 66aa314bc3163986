// SPDX-License-Identifier: Apache-2.0
// The command line as data: one plain struct for each subcommand, filled and checked by
// parse_command_line(). What is out of range, unknown or without effect is refused there, so that a
// subcommand can take its struct at its word. The library behind the parsing stays in parser.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/chat/settings.hpp"
#include "lemma/chat.hpp"
#include "lemma/engine.hpp"

namespace lemma::cli {

inline constexpr int kDone = 0, kFailed = 1, kWrongUsage = 2;  ///< exit statuses

/// What every subcommand that runs a model takes.
struct ModelOptions {
  std::filesystem::path path;  ///< a GGUF file, the first of a split one, or a folder
  BackendKind backend = BackendKind::kCpu;
  int threads = 0;  ///< 0: chosen from the machine
  KvFormat kv = KvFormat::kF16;
  NumericsMode numerics = NumericsMode::kFast;
  std::uint32_t context = 0;  ///< 0: the model's own, at most 4096
  std::string pre{};          ///< the pre-tokenizer in place of the file's; empty: the file's
  bool no_repack = false;     ///< weights stay in the file's layout
  std::uint64_t memory = 0;   ///< bytes of weights and state; 0: what the system has
};

/// A text given as an argument; "-" stands for standard input, read to its end.
struct TextArgument {
  std::string text;
  bool from_stdin = false;
};

struct RunOptions {
  ModelOptions model{};
  TextArgument prompt{};
  Sampling sampling{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
  std::optional<std::uint64_t> seed{};
  std::optional<std::size_t> max_tokens{};
  std::vector<std::string> stop{};
  bool parse_special = false;
  std::optional<Steering> steering{};
  std::optional<std::uint32_t> prefetch_experts{};
  std::optional<Constraint> constraint{};
};

struct TokenizeOptions {
  std::filesystem::path model;
  std::string pre;  ///< the pre-tokenizer in place of the file's; empty: the file's
  TextArgument text;
  bool add_special = true, parse_special = false, json = false;
};

struct RenderOptions {
  std::filesystem::path model;  ///< or a .jinja file
  std::filesystem::path input;  ///< a JSON object; "-": standard input
  std::string template_name;    ///< one of the model's; empty: the default
  std::optional<ChatTime> now{};
};

struct ChatOptions {
  ModelOptions model{};
  chat::Settings settings{
      .sampling = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}};
  std::string system;                                  ///< empty: none
  std::optional<std::filesystem::path> template_file;  ///< in place of the model's
  std::string template_name;                           ///< one of the model's; empty: the default
  std::optional<std::filesystem::path> tools, load;
  std::optional<bool> show_reasoning;  ///< none: on a terminal
  bool whole = false;                  ///< standard input is one message
  bool allow_tools = false;
};

struct DetokenizeOptions {
  std::filesystem::path model;
  std::string pre;
  std::vector<TokenId> ids;
  bool from_stdin = false;  ///< ids are read from standard input instead
  bool show_special = false;
};

struct LogitsOptions {
  ModelOptions model{.kv = KvFormat::kF32};
  std::filesystem::path tokens, out;
  std::filesystem::path draft, draft_out;  ///< a second file with draft blocks; where their rows go
  std::vector<std::uint32_t> cuts;
  bool stepwise = false, hidden = false;
  std::optional<std::uint32_t> generated_from;
};

struct ShowOptions {
  ModelOptions model{};
  std::filesystem::path draft;  ///< a second file with draft blocks
  bool json = false;
};

struct CheckOptions {
  ModelOptions model{.kv = KvFormat::kF32};
  std::optional<std::string> text;
  std::optional<std::filesystem::path> tokens;
  std::optional<std::uint32_t> most_tokens;                       ///< of the text; none: all
  std::optional<std::pair<std::uint32_t, std::uint32_t>> layers;  ///< first and last
  std::optional<std::uint32_t> generated_from;                    ///< none: the last quarter
  bool teacher_forced = false, sites = false, json = false;
};

struct BenchOptions {
  ModelOptions model{};
  std::optional<std::uint32_t> prompt;  ///< none: 512, or what the context leaves
  std::uint32_t generate = 64, repetitions = 3, sequences = 1;
  bool check = true, json = false;
};

struct EvalOptions {
  ModelOptions model{.kv = KvFormat::kF32};
  std::filesystem::path text;
  std::optional<std::uint32_t> window;  ///< none: 512, or the context if that is less
  bool score_half = false, json = false;
  std::optional<std::filesystem::path> against{};         ///< another model
  std::optional<std::filesystem::path> against_logits{};  ///< saved logits
  std::optional<std::filesystem::path> save_logits{}, per_token{};
};

struct CaptureOptions {
  ModelOptions model{.kv = KvFormat::kF32};
  std::optional<std::string> text{};
  std::optional<std::filesystem::path> tokens{};
  std::vector<std::string> sites{};  ///< patterns; empty: all for a list, the branches for steering
  std::filesystem::path out{};
  std::vector<std::string> steer_from{};  ///< none, or the files of the two sets of prompts
  bool all_rows = false, list = false, routes = false;
};

struct ExplainOptions {
  ModelOptions model{.kv = KvFormat::kF32};
  TextArgument prompt{};
  Sampling sampling{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
  std::optional<std::uint64_t> seed{};
  std::uint32_t max_tokens = 8;
  bool parse_special = false, json = false;
  std::optional<std::filesystem::path> html{};
};

/// `lemma show --verify` and `--diff`: what is in the files.
struct ShowFilesOptions {
  std::filesystem::path model;
  std::optional<std::filesystem::path> other;  ///< to compare with; none: verify
  int threads = 0;
  bool json = false;
};

/// A text that runs through a model so that something can be learned of its matrices.
struct CalibrationText {
  std::filesystem::path path;
  std::optional<std::uint32_t> window;  ///< none: 512, or the context if that is less
  std::optional<std::uint32_t> tokens;  ///< none: all
};

struct ImatrixOptions {
  ModelOptions model{.kv = KvFormat::kF32};
  CalibrationText text;
  std::filesystem::path out;
  std::vector<std::string> in;  ///< files whose sums are added
};

struct QuantizeOptions {
  std::filesystem::path in, out;
  std::string format;
  std::optional<std::filesystem::path> importance;
  std::vector<std::string> rules;  ///< PATTERN=FORMAT
  int threads = 0;
  bool gptq = false;
  CalibrationText calibration{};  ///< for gptq
  float damping = 0.01f;
};

struct PullOptions {
  std::string model;  ///< hf:OWNER/NAME[:FILE], or a URL
  std::optional<std::string> sha256;
};

struct ListOptions {};

struct RemoveOptions {
  std::string model;  ///< as `list` shows it
};

using Command =
    std::variant<RunOptions, ChatOptions, RenderOptions, TokenizeOptions, DetokenizeOptions,
                 LogitsOptions, ShowOptions, CheckOptions, BenchOptions, EvalOptions,
                 CaptureOptions, ExplainOptions, ShowFilesOptions, ImatrixOptions, QuantizeOptions,
                 PullOptions, ListOptions, RemoveOptions>;

/// A command to carry out, with notes for stderr as its text; or, without one, a text to print and
/// the status to exit with: on stdout where that is 0 (help that was asked for), else on stderr.
struct CommandLine {
  std::optional<Command> command;
  std::string text;
  int status = kDone;
};

CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace lemma::cli
