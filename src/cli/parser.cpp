// SPDX-License-Identifier: Apache-2.0
#include "cli/parser.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

namespace lemma::cli {

struct Parser::Library {
  struct Help : CLI::Formatter {
    std::string usage;
    std::string make_usage(const CLI::App*, std::string) const override { return usage; }
  };
  CLI::App app;
};

void refuse(const std::string& message) {
  throw CLI::RuntimeError(message, 2);
}

/// The whole of `text` as a number from `low` to `high`.
template <typename T>
std::optional<T> number_in(std::string_view text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(low <= value && value <= high)) return std::nullopt;
  return value;
}

template <typename T>
T parse_number(std::string_view name, std::string_view text, T low, T high) {
  if (const auto value = number_in(text, low, high)) return *value;
  if (high == std::numeric_limits<T>::max())
    refuse(fmt::format("{}: expected a number of at least {}, found '{}'", name, low, text));
  refuse(fmt::format("{}: expected a number from {} to {}, found '{}'", name, low, high, text));
}

template float parse_number(std::string_view, std::string_view, float, float);
template std::int32_t parse_number(std::string_view, std::string_view, std::int32_t, std::int32_t);
template std::uint32_t parse_number(std::string_view, std::string_view, std::uint32_t,
                                    std::uint32_t);
template std::int64_t parse_number(std::string_view, std::string_view, std::int64_t, std::int64_t);
template std::uint64_t parse_number(std::string_view, std::string_view, std::uint64_t,
                                    std::uint64_t);

std::uint64_t parse_bytes(std::string_view name, std::string_view text) {
  constexpr std::pair<std::string_view, int> kUnits[] = {
      {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  constexpr std::uint64_t kMost = std::uint64_t{1} << 60;
  std::string_view number = text;
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (!text.ends_with(unit)) continue;
    number.remove_suffix(unit.size());
    shift = bits;
  }
  const auto value = number_in<std::uint64_t>(number, 1, kMost >> shift);
  if (!value)
    refuse(
        fmt::format("{}: expected bytes, or a whole number with KiB, MiB, GiB or TiB, more than "
                    "none and at most 1048576 TiB, found '{}'",
                    name, text));
  return *value << shift;
}

std::vector<std::uint32_t> parse_numbers(std::string_view name, std::string_view list,
                                         std::uint32_t low, std::uint32_t high) {
  std::vector<std::uint32_t> numbers;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    numbers.push_back(parse_number(name, list.substr(at, comma - at), low, high));
    at = comma + 1;
  }
  return numbers;
}

std::vector<std::string> parse_list(std::string_view name, std::string_view list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    if (comma == at) refuse(fmt::format("{}: a pattern is empty", name));
    parts.emplace_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

TextArgument text_argument(std::string text) {
  if (text == "-") return {{}, true};
  return {std::move(text), false};
}

Parser::Parser(std::string_view command, std::string_view usage, const std::string& about,
               std::string_view example)
    : library_(std::make_unique<Library>()) {
  CLI::App& app = library_->app;
  app.description(about);
  app.name(fmt::format("lemma {}", command));
  auto help = std::make_shared<Library::Help>();
  help->usage = fmt::format("\nusage: lemma {} {}\n", command, usage);
  help->column_width(26);
  help->label("REQUIRED", "");
  app.formatter(help);
  app.footer(fmt::format("example: {}\n", example));
  app.allow_extras();
  app.set_help_flag("--help,-h", "this text");
}

Parser::~Parser() = default;

void Parser::option(const std::string& name, Take take, const std::string& unit,
                    const std::string& about) {
  library_->app.add_option_function<std::string>(name, take, about)->type_name(unit);
}

void Parser::flag(const char* name, bool& target, const std::string& about) {
  library_->app.add_flag_callback(
      name, [&target] { target = true; }, about);
}

void Parser::rest(const char* name, std::vector<std::string>& target, const char* unit,
                  const std::string& about) {
  library_->app.add_option(name, target, about)->type_name(unit);
}

void Parser::several(const char* name, std::vector<std::string>& target, int count,
                     const char* unit, const std::string& about) {
  library_->app.add_option(name, target, about)->expected(count)->type_name(unit);
}

void Parser::repeated(const char* name, std::vector<std::string>& target, const char* unit,
                      const std::string& about) {
  library_->app.add_option(name, target, about)->type_name(unit)->allow_extra_args(false);
}

void Parser::require(const char* name) {
  library_->app.get_option(name)->required();
}

void Parser::model(std::filesystem::path& target, const char* name) {
  model_option(
      name, target, "",
      "a GGUF file, the first of a split one, a folder that holds a model, or the name of a pulled "
      "one (hf:OWNER/NAME[:FILE])");
  require(name);
}

void Parser::machine(ModelOptions& options) {
  word<BackendKind>("--backend", options.backend,
                    {{"reference", BackendKind::kReference}, {"cpu", BackendKind::kCpu}},
                    "who computes (default cpu; reference is slow and plain)");
  number<int>("--threads", options.threads, {1, 1024}, "N",
              "threads (default: one for each fast core that lemma may use)");
  word<KvFormat>(
      "--kv", options.kv,
      {{"f32", KvFormat::kF32},
       {"f16", KvFormat::kF16},
       {"bf16", KvFormat::kBF16},
       {"q8", KvFormat::kQ8},
       {"fp8", KvFormat::kFp8}},
      fmt::format("format of keys and values in the state; fp8 is DeepSeek V4's (default {})",
                  options.kv == KvFormat::kF32 ? "f32" : "f16"));
  word<NumericsMode>(
      "--numerics", options.numerics,
      {{"fast", NumericsMode::kFast}, {"strict", NumericsMode::kStrict}},
      "fast: activations may be rounded, to int8 for quantized weights, entered ones "
      "to 13 bits for F16 and BF16 weights; strict: they stay f32 (default fast)");
  flag("--no-repack", options.no_repack,
       "start at once: weights stay in the file's layout and are turned into the kernels' as they "
       "are used; the same results, each step somewhat slower");
  option(
      "--memory",
      [&options](const std::string& text) { options.memory = parse_bytes("--memory", text); },
      "SIZE",
      "bytes, or a number with MiB or GiB, that weights and state may take; experts beyond it stay "
      "in the file, and those that are chosen are read (default: what the system has)");
}

void Parser::loading(ModelOptions& options) {
  number<std::uint32_t>("--ctx", options.context, {1, kMaxU32}, "N",
                        "tokens that the context holds (default: the model's own, at most 4096)");
  pre_tokenizer(options.pre);
}

void Parser::pre_tokenizer(std::string& target) {
  text("--pre", target, "NAME",
       "cut words by the rules of this name in place of the file's; a wrong name lists all");
}

bool Parser::given(const char* name) const {
  return library_->app.count(name) > 0;
}

void Parser::refuse_together(const char* name, const char* other, const std::string& why) const {
  if (given(name) && given(other))
    refuse(fmt::format("{} has no effect with {}: {}", name, other, why));
}

void Parser::report_idle_machine_options(const ModelOptions& options) {
  if (options.backend != BackendKind::kReference) return;
  if (options.threads > 1)
    report("--threads has no effect with --backend reference: it runs on one thread");
  if (given("--numerics") && options.numerics == NumericsMode::kFast)
    report("--numerics fast has no effect with --backend reference: it is always strict");
  for (const char* option : {"--no-repack", "--memory"}) {
    if (given(option))
      report(fmt::format("{} has no effect with --backend reference: it packs nothing", option));
  }
}

void Parser::report_idle_machine_options() {
  for (const char* option :
       {"--backend", "--threads", "--kv", "--numerics", "--no-repack", "--memory"})
    if (given(option)) report(fmt::format("{} has no effect here: no model is run", option));
}

CommandLine Parser::parse(Arguments arguments, const std::function<Command()>& finish) {
  CLI::App& app = library_->app;
  const std::string name = app.get_name();
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants its vectors
    app.parse(std::move(arguments));
    for (const std::string& extra : app.remaining())
      if (extra != "--") refuse(fmt::format("unexpected argument '{}'", extra));
    Command command = finish();
    return {std::move(command), notes_, kDone};
  } catch (const CLI::CallForHelp&) {
    return {std::nullopt, app.help(), kDone};
  } catch (const CLI::Error& error) {
    return {std::nullopt, fmt::format("{}: {}\nSee '{} --help'.\n", name, error.what(), name),
            kWrongUsage};
  }
}

}  // namespace lemma::cli
