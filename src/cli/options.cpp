// SPDX-License-Identifier: Apache-2.0
#include "cli/options.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <system_error>

namespace lemma::cli {
namespace {

constexpr std::uint32_t kMaxU32 = std::numeric_limits<std::uint32_t>::max();

/// A value or a combination that the command line must not hold; caught in parse_with().
[[noreturn]] void refuse(const std::string& message) {
  throw CLI::RuntimeError(message, 2);
}

/// All of `text` as a decimal number in [low, high]; NaN is in no range.
template <typename T>
T parse_number(std::string_view name, std::string_view text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(low <= value && value <= high)) {
    if (high == std::numeric_limits<T>::max())
      refuse(fmt::format("{}: expected a number of at least {}, found '{}'", name, low, text));
    refuse(fmt::format("{}: expected a number from {} to {}, found '{}'", name, low, high, text));
  }
  return value;
}

template <typename T>
struct Range {
  T low, high;
};
template <typename T>
Range(T, T) -> Range<T>;

/// One subcommand's parser, with the shapes of option that lemma uses.
class Parser {
 public:
  Parser(std::string_view command, std::string_view usage, const std::string& about,
         std::string_view example)
      : app_(about, fmt::format("lemma {}", command)) {
    auto help = std::make_shared<Help>();
    help->usage = fmt::format("\nusage: lemma {} {}\n", command, usage);
    help->column_width(26);
    help->label("REQUIRED", "");
    app_.formatter(help);
    app_.footer(fmt::format("example: {}\n", example));
    app_.allow_extras();
    app_.set_help_flag("--help,-h", "this text");
  }

  void text(const char* name, std::string& target, const char* unit, const std::string& about) {
    app_.add_option(name, target, about)->type_name(unit);
  }
  template <typename Target>
  void path(const char* name, Target& target, const char* unit, const std::string& about) {
    app_.add_option_function<std::string>(
            name, [&target](const std::string& value) { target = value; }, about)
        ->type_name(unit);
  }
  void flag(const char* name, bool& target, const std::string& about) {
    app_.add_flag_callback(
        name, [&target] { target = true; }, about);
  }
  template <typename T, typename Target>
  void number(const char* name, Target& target, Range<T> range, const char* unit,
              const std::string& about) {
    app_.add_option_function<std::string>(
            name,
            [=, &target](const std::string& value) {
              target = parse_number<T>(name, value, range.low, range.high);
            },
            about)
        ->type_name(unit);
  }
  /// One of a few words, each with its value.
  template <typename T>
  void word(const char* name, T& target, std::vector<std::pair<std::string, T>> words,
            const std::string& about) {
    std::string list;
    for (const auto& [spelling, value] : words) list += (list.empty() ? "" : "|") + spelling;
    app_.add_option_function<std::string>(
            name,
            [=, &target](const std::string& found) {
              for (const auto& [spelling, value] : words) {
                if (spelling != found) continue;
                target = value;
                return;
              }
              refuse(fmt::format("{}: expected {}, found '{}'", name, list, found));
            },
            about)
        ->type_name(list);
  }
  void model(std::filesystem::path& target) {
    path("MODEL", target, "", "a GGUF file, the first of a split one, or a folder that holds one");
    app_.get_option("MODEL")->required();
  }
  void machine(ModelOptions& options);
  void context(ModelOptions& options) {
    number<std::uint32_t>("--ctx", options.context, {1, kMaxU32}, "N",
                          "tokens that the context holds (default: the model's own, at most 4096)");
  }

  CLI::App& app() { return app_; }
  /// Something that the caller should know, for stderr.
  void report(const std::string& note) { notes_ += "lemma: " + note + "\n"; }
  const std::string& notes() const { return notes_; }
  bool given(const char* name) const { return app_.count(name) > 0; }
  void refuse_together(const char* name, const char* other, const std::string& why) const {
    if (given(name) && given(other))
      refuse(fmt::format("{} has no effect with {}: {}", name, other, why));
  }

 private:
  struct Help : CLI::Formatter {
    std::string usage;
    std::string make_usage(const CLI::App*, std::string) const override { return usage; }
  };
  CLI::App app_;
  std::string notes_;
};

void Parser::machine(ModelOptions& options) {
  word<BackendKind>("--backend", options.backend,
                    {{"reference", BackendKind::kReference}, {"cpu", BackendKind::kCpu}},
                    "who computes (default cpu; reference is slow and plain)");
  number<int>("--threads", options.threads, {1, 1024}, "N",
              "threads (default: one for each fast core that lemma may use)");
  word<KvFormat>("--kv", options.kv,
                 {{"f32", KvFormat::kF32},
                  {"f16", KvFormat::kF16},
                  {"bf16", KvFormat::kBF16},
                  {"q8", KvFormat::kQ8}},
                 fmt::format("format of keys and values in the state (default {})",
                             options.kv == KvFormat::kF32 ? "f32" : "f16"));
  word<NumericsMode>("--numerics", options.numerics,
                     {{"fast", NumericsMode::kFast}, {"strict", NumericsMode::kStrict}},
                     "fast: activations may be rounded to int8 for quantized weights; strict: they "
                     "stay f32 (default fast)");
}

/// Every command takes the machine's options, so that a script may give all of them the same ones;
/// what they cannot change is said.
void report_idle_machine_options(Parser& parser, const ModelOptions& options) {
  if (options.backend != BackendKind::kReference) return;
  if (options.threads > 1)
    parser.report("--threads has no effect with --backend reference: it runs on one thread");
  if (parser.given("--numerics") && options.numerics == NumericsMode::kFast)
    parser.report("--numerics fast has no effect with --backend reference: it is always strict");
}

/// The same where no model is run at all.
void report_idle_machine_options(Parser& parser) {
  for (const char* option : {"--backend", "--threads", "--kv", "--numerics"})
    if (parser.given(option))
      parser.report(fmt::format("{} has no effect here: no model is run", option));
}

TextArgument text_argument(std::string text) {
  if (text == "-") return {{}, true};
  return {std::move(text), false};
}

using Arguments = std::vector<std::string>;

/// Parses, and gives `finish` the word once everything is in place.
CommandLine parse_with(Parser& parser, Arguments arguments,
                       const std::function<Command()>& finish) {
  const std::string name = parser.app().get_name();
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants its vectors
    parser.app().parse(std::move(arguments));
    for (const std::string& extra : parser.app().remaining())
      if (extra != "--") refuse(fmt::format("unexpected argument '{}'", extra));
    Command command = finish();
    return {std::move(command), parser.notes(), kDone};
  } catch (const CLI::CallForHelp&) {
    return {std::nullopt, parser.app().help(), kDone};
  } catch (const CLI::Error& error) {
    return {std::nullopt, fmt::format("{}: {}\nSee '{} --help'.\n", name, error.what(), name),
            kWrongUsage};
  }
}

/// What `run` and `explain` take.
void add_sampling(Parser& parser, Sampling& s, std::optional<std::uint64_t>& seed) {
  parser.number<float>("--temp", s.temperature, {0.f, 100.f}, "T",
                       "temperature; 0 always takes the likeliest token (default 0.8)");
  parser.number<std::int64_t>("--top-k", s.top_k, {0, std::numeric_limits<std::int64_t>::max()},
                              "K", "draw from the K likeliest tokens; 0: off (default 40)");
  parser.number<float>("--top-p", s.top_p, {0.f, 1.f}, "P",
                       "draw from the likeliest tokens that hold P of the probability; 1: off "
                       "(default 0.95)");
  parser.number<float>("--min-p", s.min_p, {0.f, 1.f}, "P",
                       "leave out tokens below P times the best one's probability; 0: off (default "
                       "0.05)");
  parser.number<float>("--repetition-penalty", s.repetition_penalty, {0.01f, 100.f}, "R",
                       "divides the logits of tokens that occurred (default 1: off)");
  parser.number<float>("--presence-penalty", s.presence_penalty, {-100.f, 100.f}, "X",
                       "subtracted once from the logit of each token that occurred (default 0)");
  parser.number<float>("--frequency-penalty", s.frequency_penalty, {-100.f, 100.f}, "X",
                       "subtracted for each time that it occurred (default 0)");
  parser.number<std::uint64_t>("--seed", seed, {0, std::numeric_limits<std::uint64_t>::max()}, "S",
                               "of the draws; the same seed gives the same text (default: a fresh "
                               "one, printed at the end)");
}

void refuse_idle_sampling(const Parser& parser, const Sampling& sampling) {
  if (sampling.temperature != 0.f) return;
  for (const char* option : {"--top-k", "--top-p", "--min-p", "--seed"})
    if (parser.given(option))
      refuse(fmt::format("{} has no effect with --temp 0: nothing is drawn", option));
}

void add_steering(Parser& parser, Steering& steering) {
  constexpr float kMost = std::numeric_limits<float>::max();
  parser.path("--steer", steering.file, "FILE",
              "add vectors to the rows of sites (lemma capture --steer-from makes such a file)");
  parser.number<float>("--steer-ffn", steering.ffn, {-kMost, kMost}, "X",
                       "times the vectors of feed-forward sites (default 1, or 0 beside "
                       "--steer-attn)");
  parser.number<float>("--steer-attn", steering.attention, {-kMost, kMost}, "Y",
                       "times the vectors of attention sites (default 1, or 0 beside --steer-ffn)");
}

std::optional<Steering> steering_of(const Parser& parser, Steering steering) {
  if (parser.given("--steer")) return steering;
  for (const char* option : {"--steer-ffn", "--steer-attn"})
    if (parser.given(option)) refuse(fmt::format("{} has no effect without --steer", option));
  return std::nullopt;
}

CommandLine parse_run(Arguments arguments) {
  Parser parser("run", "[-m MODEL | MODEL.gguf | DIR] [PROMPT] [options]",
                "Continues a prompt. Stdout gets the generated text alone, as it comes; statistics "
                "go to stderr.\nThe text is what the tokens add to the prompt's; an absent prompt "
                "is the empty one (BOS alone).\nEnds at the model's end of text, at a stop text, "
                "after --max-tokens or when the context is full.\nA reader that closes the pipe "
                "ends the run with status 0, Ctrl-C with status 1.",
                "lemma run model.gguf \"Once upon a time\" --temp 0 --max-tokens 100");
  RunOptions options;
  std::string first, second;
  parser.text("MODEL", first, "", "a GGUF file, the first of a split one, or a folder");
  parser.text("PROMPT", second, "",
              "the text to continue; - reads standard input; if it begins with '-', put it last, "
              "behind --");
  parser.path("-m,--model", options.model.path, "MODEL",
              "names the model, so that the only argument is the prompt");
  add_sampling(parser, options.sampling, options.seed);
  Steering steering;
  add_steering(parser, steering);
  parser.number<std::size_t>("--max-tokens", options.max_tokens,
                             {1, std::numeric_limits<std::size_t>::max()}, "N",
                             "tokens to generate at most (default: until the context is full)");
  parser.app()
      .add_option("--stop", options.stop,
                  "ends the run where the text contains TEXT, which is not printed; repeatable")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  parser.context(options.model);
  parser.flag("--parse-special", options.parse_special,
              "text that spells a control token, such as <s>, becomes that token");
  parser.machine(options.model);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    const bool named = parser.given("-m");
    if (named && parser.given("PROMPT"))
      refuse(fmt::format("one model too many: '{}' beside -m", first));
    if (!named && !parser.given("MODEL")) refuse("no model: give a GGUF file or a folder");
    if (!named) options.model.path = first;
    options.prompt = text_argument(std::move(named ? first : second));
    refuse_idle_sampling(parser, options.sampling);
    options.steering = steering_of(parser, std::move(steering));
    for (const std::string& stop : options.stop)
      if (stop.empty()) refuse("--stop: an empty text would end every run at once");
    report_idle_machine_options(parser, options.model);
    return std::move(options);
  });
}

CommandLine parse_tokenize(Arguments arguments) {
  Parser parser("tokenize", "MODEL [TEXT|-] [options]",
                "Prints the token ids of a text, separated by blanks. An absent text is the empty "
                "one.\nWith --json: {\"ids\":[...],\"pieces\":[...]}; a piece is the text of its "
                "token (control tokens as they are\nspelt), or an array of byte values where that "
                "is no valid UTF-8.",
                "lemma tokenize model.gguf \"Once upon a time\" --json");
  TokenizeOptions options;
  std::string text;
  parser.model(options.model);
  parser.text("TEXT", text, "", "the text; - reads standard input to its end");
  bool no_special = false;
  parser.flag("--no-special", no_special, "add no BOS or EOS, whatever the model says");
  parser.flag("--parse-special", options.parse_special,
              "text that spells a control token, such as <s>, becomes that token");
  parser.flag("--json", options.json, "ids and pieces as JSON");
  ModelOptions idle;
  parser.machine(idle);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    report_idle_machine_options(parser);
    options.add_special = !no_special;
    options.text = text_argument(std::move(text));
    return std::move(options);
  });
}

CommandLine parse_detokenize(Arguments arguments) {
  Parser parser("detokenize", "MODEL IDS... [options]",
                "Prints the text of token ids, byte for byte; a line break is added only on a "
                "terminal.",
                "lemma detokenize model.gguf 1 403 407 261 378");
  DetokenizeOptions options;
  Arguments ids;
  parser.model(options.model);
  parser.app()
      .add_option("IDS", ids, "token ids; - reads them from standard input")
      ->type_name("")
      ->required();
  parser.flag("--special", options.show_special, "show control tokens as they are spelt");
  ModelOptions idle;
  parser.machine(idle);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    report_idle_machine_options(parser);
    options.from_stdin = ids.size() == 1 && ids[0] == "-";
    if (options.from_stdin) ids.clear();
    for (const std::string& id : ids)
      options.ids.push_back(
          parse_number<TokenId>("IDS", id, 0, std::numeric_limits<TokenId>::max() - 1));
    return std::move(options);
  });
}

std::vector<std::uint32_t> parse_cuts(std::string_view list) {
  std::vector<std::uint32_t> cuts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    cuts.push_back(
        parse_number<std::uint32_t>("--cut", list.substr(at, comma - at), 1, kMaxU32 - 1));
    at = comma + 1;
  }
  return cuts;
}

CommandLine parse_logits(Arguments arguments) {
  Parser parser("logits", "MODEL --tokens FILE.json --out FILE.f32 [options]",
                "Evaluates known tokens and writes the logits of every position: raw little-endian "
                "f32 rows [T, V].\nThe ids are taken as they are; nothing is added.",
                "lemma logits model.gguf --tokens tokens.json --out logits.f32 --cut 20,28");
  LogitsOptions options;
  std::string cuts;
  parser.model(options.model.path);
  parser.path("--tokens", options.tokens, "FILE", "a JSON array of token ids");
  parser.path("--out", options.out, "FILE", "where the rows go; replaced when all is written");
  parser.app().get_option("--tokens")->required();
  parser.app().get_option("--out")->required();
  parser.text("--cut", cuts, "N,N...", "evaluate in chunks that end before these positions");
  parser.flag("--stepwise", options.stepwise, "evaluate token by token");
  parser.number<std::uint32_t>("--generated-from", options.generated_from, {0, kMaxU32 - 1}, "N",
                               "tokens from position N on count as generated, not as entered");
  parser.flag("--hidden", options.hidden,
              "write the last hidden state, [T, D], instead of the logits");
  parser.context(options.model);
  parser.machine(options.model);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    parser.refuse_together("--cut", "--stepwise", "every position is cut already");
    if (parser.given("--cut")) options.cuts = parse_cuts(cuts);
    report_idle_machine_options(parser, options.model);
    return std::move(options);
  });
}

CommandLine parse_show(Arguments arguments) {
  Parser parser("show", "MODEL [options]",
                "Describes a model: metadata, plan, what it needs in memory, and which "
                "implementation runs each operation here.",
                "lemma show model.gguf --ctx 8192");
  ShowOptions options;
  parser.model(options.model.path);
  parser.flag("--json", options.json, "everything as one JSON object");
  parser.context(options.model);
  parser.machine(options.model);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    report_idle_machine_options(parser, options.model);
    return std::move(options);
  });
}

CommandLine parse_check(Arguments arguments) {
  Parser parser("check", "MODEL [options]",
                "Runs a backend beside the reference on the same tokens and compares every site of "
                "the forward pass.\nNames the first site past its tolerance and then exits with "
                "status 1.",
                "lemma check model.gguf --teacher-forced");
  CheckOptions options;
  parser.model(options.model.path);
  parser.path("--text", options.text, "TEXT", "the text to run (default: a built-in paragraph)");
  parser.path("--tokens", options.tokens, "FILE", "a JSON array of token ids to run instead");
  parser.number<std::uint32_t>("--generated-from", options.generated_from, {0, kMaxU32 - 1}, "N",
                               "tokens from position N on run as generated ones, the others as "
                               "prompt (default: the last quarter)");
  parser.flag("--teacher-forced", options.teacher_forced,
              "feed each site the reference's rows, so that an error shows where it is made");
  parser.flag("--sites", options.sites, "list every site of every layer, not only the worst ones");
  parser.flag("--json", options.json, "the report as JSON, with every site");
  parser.context(options.model);
  parser.machine(options.model);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    parser.refuse_together("--text", "--tokens", "the tokens are what is run");
    parser.refuse_together("--sites", "--json", "JSON always lists every site");
    report_idle_machine_options(parser, options.model);
    return std::move(options);
  });
}

CommandLine parse_bench(Arguments arguments) {
  Parser parser("bench", "MODEL [options]",
                "Measures tokens per second of prefill and decode. The logits of a short prompt "
                "are compared with the\nreference first: a fast wrong answer is a failure.",
                "lemma bench model.gguf --prompt 512 --generate 64 --reps 3");
  BenchOptions options;
  bool no_check = false;
  parser.model(options.model.path);
  parser.number<std::uint32_t>("--prompt", options.prompt, {1, kMaxU32 / 2}, "N",
                               "tokens of prefill (default 512, or what the context leaves)");
  parser.number<std::uint32_t>("--generate", options.generate, {0, kMaxU32 / 2}, "N",
                               "tokens to decode after it (default 64)");
  parser.number<std::uint32_t>("--reps", options.repetitions, {1, 10000}, "N",
                               "repetitions; median and best are printed (default 3)");
  parser.flag("--no-check", no_check, "do not compare with the reference");
  parser.flag("--json", options.json, "the result as JSON");
  parser.context(options.model);
  parser.machine(options.model);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    options.check = !no_check;
    report_idle_machine_options(parser, options.model);
    return std::move(options);
  });
}

CommandLine parse_eval(Arguments arguments) {
  Parser parser(
      "eval", "MODEL TEXTFILE [options]",
      "Perplexity of a text. The text becomes one row of tokens (with BOS in front where "
      "the model adds one) and is cut\ninto windows of --window tokens. In each, the "
      "first token is replaced by BOS where the model adds one.\n--score all: every "
      "token but a window's first is predicted from those before it in the window; the "
      "last window may be short.\n--score half: only tokens in the second half of whole "
      "windows count, so that each has half a window of\ncontext (the rule of llama.cpp's "
      "perplexity program, for comparison with its numbers).",
      "lemma eval model.gguf text.txt --window 512 --score half");
  EvalOptions options;
  parser.model(options.model.path);
  parser.path("TEXTFILE", options.text, "", "the text, as UTF-8");
  parser.app().get_option("TEXTFILE")->required();
  parser.number<std::uint32_t>("--window", options.window, {4, kMaxU32 - 1}, "N",
                               "tokens of a window (default 512, or the context if that is less)");
  parser.word<bool>("--score", options.score_half, {{"all", false}, {"half", true}},
                    "which tokens count (default all)");
  parser.flag("--json", options.json, "the result as JSON");
  parser.context(options.model);
  parser.machine(options.model);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    report_idle_machine_options(parser, options.model);
    return std::move(options);
  });
}

std::vector<std::string> parse_sites(std::string_view list) {
  std::vector<std::string> patterns;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    if (comma == at) refuse("--sites: a pattern is empty");
    patterns.emplace_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return patterns;
}

void check_capture(const Parser& parser, const CaptureOptions& options) {
  for (const char* other : {"--steer-from", "--text", "--tokens", "--out"})
    parser.refuse_together(other, "--list", "nothing is run");
  for (const char* other : {"--text", "--tokens"})
    parser.refuse_together(other, "--steer-from", "the prompts are what is run");
  parser.refuse_together("--text", "--tokens", "the tokens are what is run");
  if (parser.given("--rows") && options.steer_from.empty())
    refuse("--rows has no effect without --steer-from: all rows are written");
  if (options.list) return;
  if (!parser.given("--out")) refuse("--out: say where the file goes");
  if (!options.steer_from.empty()) return;
  if (options.sites.empty()) refuse("--sites: say which sites (--list shows them)");
  if (!options.text && !options.tokens) refuse("give a --text or --tokens to run");
}

CommandLine parse_capture(Arguments arguments) {
  Parser parser(
      "capture", "MODEL --sites PATTERN[,PATTERN] --out FILE [--text TEXT | --tokens FILE]",
      "Writes what stands at named sites of the forward pass: a safetensors file with an F32 "
      "tensor [T, width] for each\nsite, under its name, and the token ids as the I32 tensor "
      "'tokens'. In a pattern '*' is any run of characters,\n'?' any one.\nWith --steer-from it "
      "writes steering vectors [width] for 'lemma run --steer' instead: the mean row over the\n"
      "first file's prompts minus that over the second's; --sites then defaults to what each site "
      "adds to the stream.",
      "lemma capture model.gguf --text \"Once upon\" --sites 'layers.*.ffn.output' --out "
      "x.safetensors");
  CaptureOptions options;
  std::string sites;
  parser.model(options.model.path);
  parser.flag("--list", options.list, "print the sites with their widths, and run nothing");
  parser.text("--sites", sites, "PATTERNS", "which sites, for example layers.*.attention.output");
  parser.path("--text", options.text, "TEXT", "the text to run");
  parser.path("--tokens", options.tokens, "FILE", "a JSON array of token ids to run instead");
  parser.path("--out", options.out, "FILE|DIR",
              "the file; a folder, there already or ending in '/', gets a file for each site");
  parser.app()
      .add_option("--steer-from", options.steer_from,
                  "two files of prompts, one a line: towards the first, away from the second")
      ->expected(2)
      ->type_name("FILE FILE");
  parser.word<bool>("--rows", options.all_rows, {{"last", false}, {"all", true}},
                    "of each prompt: its last token's row, or the mean over all (default last)");
  parser.context(options.model);
  parser.machine(options.model);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    if (parser.given("--sites")) options.sites = parse_sites(sites);
    check_capture(parser, options);
    report_idle_machine_options(parser, options.model);
    return std::move(options);
  });
}

CommandLine parse_explain(Arguments arguments) {
  Parser parser("explain", "MODEL [PROMPT|-] [options]",
                "Shows the way of a prompt through the model, with the numbers that were really "
                "computed: tokens, shapes, what\nattention reads, which experts are chosen, the "
                "candidates at each sampling stage, state and time.",
                "lemma explain model.gguf \"Once upon a time\" --max-tokens 8 --html way.html");
  ExplainOptions options;
  std::string prompt;
  parser.model(options.model.path);
  parser.text("PROMPT", prompt, "", "the text; - reads standard input; absent: the empty one");
  parser.number<std::uint32_t>("--max-tokens", options.max_tokens, {1, 256}, "N",
                               "tokens to generate at most (default 8)");
  add_sampling(parser, options.sampling, options.seed);
  parser.flag("--parse-special", options.parse_special,
              "text that spells a control token, such as <s>, becomes that token");
  parser.path("--html", options.html, "FILE",
              "also write one page with pictures, which needs nothing else");
  parser.flag("--json", options.json, "all of it as JSON");
  parser.context(options.model);
  parser.machine(options.model);
  return parse_with(parser, std::move(arguments), [&]() -> Command {
    options.prompt = text_argument(std::move(prompt));
    refuse_idle_sampling(parser, options.sampling);
    report_idle_machine_options(parser, options.model);
    return std::move(options);
  });
}

struct Subcommand {
  std::string_view name, summary;
  CommandLine (*parse)(Arguments);
};
constexpr Subcommand kSubcommands[] = {
    {"run", "continue a prompt", parse_run},
    {"tokenize", "token ids of a text", parse_tokenize},
    {"detokenize", "text of token ids", parse_detokenize},
    {"logits", "logits of known tokens, to a file", parse_logits},
    {"show", "metadata, plan, memory and implementations of a model", parse_show},
    {"check", "compare a backend with the reference, site by site", parse_check},
    {"bench", "tokens per second", parse_bench},
    {"eval", "perplexity of a text", parse_eval},
    {"capture", "activations at named sites, and steering vectors", parse_capture},
    {"explain", "the way of a prompt through a model", parse_explain},
};

std::string overview() {
  std::string text =
      "lemma runs large language models from GGUF files.\n\nusage: lemma COMMAND [arguments]\n\n"
      "commands:\n";
  for (const Subcommand& subcommand : kSubcommands)
    text += fmt::format("  {:<12}{}\n", subcommand.name, subcommand.summary);
  text +=
      "\n'lemma COMMAND --help' explains a command; 'lemma --version' prints the version.\n"
      "Results go to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 wrong "
      "usage.\n\nexample: lemma run model.gguf \"Once upon a time\"\n";
  return text;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  const Arguments arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty()) return {std::nullopt, overview(), kWrongUsage};
  const std::string& first = arguments[0];
  if (arguments.size() == 1) {
    if (first == "--help" || first == "-h" || first == "help")
      return {std::nullopt, overview(), kDone};
    if (first == "--version") return {std::nullopt, "lemma " LEMMA_VERSION "\n", kDone};
  }
  for (const Subcommand& subcommand : kSubcommands)
    if (subcommand.name == first)
      return subcommand.parse(Arguments(arguments.begin() + 1, arguments.end()));
  return {std::nullopt, fmt::format("lemma: '{}' is not a command\nSee 'lemma --help'.\n", first),
          kWrongUsage};
}

}  // namespace lemma::cli
