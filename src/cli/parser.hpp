// SPDX-License-Identifier: Apache-2.0
// One subcommand's parser, with the shapes of option that lemma uses. What is wrong with a command
// line is refused from anywhere inside parse() and comes back as text and status; nothing here
// prints. The library that does the work is seen by parser.cpp alone.
//
//   Parser parser("show", "MODEL [options]", "Describes a model.", "lemma show model.gguf");
//   parser.model(options.model.path);
//   return parser.parse(std::move(arguments), [&]() -> Command { return std::move(options); });
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/models/names.hpp"
#include "cli/options.hpp"

namespace lemma::cli {

using Arguments = std::vector<std::string>;

inline constexpr std::uint32_t kMaxU32 = std::numeric_limits<std::uint32_t>::max();

/// A value or a combination that the command line must not hold; caught in Parser::parse().
[[noreturn]] void refuse(const std::string& message);

/// All of `text` as a decimal number in [low, high]; NaN is in no range. For float and for signed
/// and unsigned integers of 32 and 64 bits.
template <typename T>
T parse_number(std::string_view name, std::string_view text, T low, T high);

/// "1073741824", "1024MiB", "1GiB": whole numbers, at least 1 byte and at most 2^60.
std::uint64_t parse_bytes(std::string_view name, std::string_view text);

/// "3,5,8" as numbers in [low, high].
std::vector<std::uint32_t> parse_numbers(std::string_view name, std::string_view list,
                                         std::uint32_t low, std::uint32_t high);

/// The parts of a list between its commas, none of them empty.
std::vector<std::string> parse_list(std::string_view name, std::string_view list);

/// "-" is standard input.
TextArgument text_argument(std::string text);

template <typename T>
struct Range {
  T low, high;
};
template <typename T>
Range(T, T) -> Range<T>;

class Parser {
 public:
  Parser(std::string_view command, std::string_view usage, const std::string& about,
         std::string_view example);
  ~Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  using Take = std::function<void(const std::string&)>;

  /// An option (--name) or an argument (NAME) whose text goes to `take`.
  void option(const std::string& name, Take take, const std::string& unit,
              const std::string& about);
  void text(const char* name, std::string& target, const char* unit, const std::string& about) {
    path(name, target, unit, about);
  }
  /// Text for any target that can be assigned a string.
  template <typename Target>
  void path(const char* name, Target& target, const char* unit, const std::string& about) {
    option(
        name, [&target](const std::string& value) { target = value; }, unit, about);
  }
  void flag(const char* name, bool& target, const std::string& about);
  template <typename T, typename Target>
  void number(const char* name, Target& target, Range<T> range, const char* unit,
              const std::string& about) {
    option(
        name,
        [=, &target](const std::string& value) {
          target = parse_number<T>(name, value, range.low, range.high);
        },
        unit, about);
  }
  /// One of a few words, each with its value.
  template <typename T>
  void word(const char* name, T& target, std::vector<std::pair<std::string, T>> words,
            const std::string& about) {
    std::string list;
    for (const auto& [spelling, value] : words) list += (list.empty() ? "" : "|") + spelling;
    option(
        name,
        [=, &target](const std::string& found) {
          for (const auto& [spelling, value] : words) {
            if (spelling != found) continue;
            target = value;
            return;
          }
          refuse(std::string(name) + ": expected " + list + ", found '" + found + "'");
        },
        list, about);
  }
  /// An argument that takes all that is left.
  void rest(const char* name, std::vector<std::string>& target, const char* unit,
            const std::string& about);
  /// An option with exactly `count` values.
  void several(const char* name, std::vector<std::string>& target, int count, const char* unit,
               const std::string& about);
  /// An option that may be given again and again, each time with one value.
  void repeated(const char* name, std::vector<std::string>& target, const char* unit,
                const std::string& about);
  void require(const char* name);

  /// A model that must be there: a path, or the name of one that was pulled.
  void model(std::filesystem::path& target, const char* name = "MODEL");
  /// An option that names a further one in the same ways.
  template <typename Target>
  void model_option(const char* name, Target& target, const char* unit, const std::string& about) {
    option(
        name, [&target](const std::string& given) { target = resolve_model(given); }, unit, about);
  }
  void machine(ModelOptions& options);
  /// --ctx and --pre: what every command takes that loads a model whole.
  void loading(ModelOptions& options);
  void pre_tokenizer(std::string& target);

  bool given(const char* name) const;
  void refuse_together(const char* name, const char* other, const std::string& why) const;
  /// Something that the caller should know, for stderr.
  void report(const std::string& note) { notes_ += "lemma: " + note + "\n"; }
  /// Every command takes the machine's options, so that a script may give all of them the same
  /// ones; what they cannot change is said.
  void report_idle_machine_options(const ModelOptions& options);
  /// The same where no model is run at all.
  void report_idle_machine_options();

  /// Parses, and gives `finish` the word once everything is in place.
  CommandLine parse(Arguments arguments, const std::function<Command()>& finish);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  std::string notes_;
};

}  // namespace lemma::cli
