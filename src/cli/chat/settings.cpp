// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/settings.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <system_error>

#include "base/raise.hpp"

namespace lemma::cli::chat {
namespace {

struct Setting {
  std::string_view name, values;
  void (*set)(Settings&, std::string_view value, const Setting&);
  std::string (*get)(const Settings&);
};

[[noreturn]] void refuse(const Setting& setting, std::string_view value) {
  base::raise(ErrorKind::kUsage, "{}: expected {}, found '{}'", setting.name, setting.values,
              value);
}

template <typename T>
T number(const Setting& setting, std::string_view text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(low <= value && value <= high)) refuse(setting, text);
  return value;
}

bool on_or_off(const Setting& setting, std::string_view text) {
  if (text != "on" && text != "off") refuse(setting, text);
  return text == "on";
}

std::string_view word(bool on) {
  return on ? "on" : "off";
}

template <float Sampling::*Field, int Low, int High>
void set_float(Settings& settings, std::string_view value, const Setting& setting) {
  settings.sampling.*Field = number<float>(setting, value, float(Low), float(High));
}
template <float Sampling::*Field>
std::string get_float(const Settings& settings) {
  return fmt::format("{}", settings.sampling.*Field);
}

constexpr Setting kSettings[] = {
    {"temperature", "a number from 0 to 100", set_float<&Sampling::temperature, 0, 100>,
     get_float<&Sampling::temperature>},
    {"top_k", "a number of tokens; 0: all",
     [](Settings& s, std::string_view value, const Setting& self) {
       s.sampling.top_k =
           number<std::int64_t>(self, value, 0, std::numeric_limits<std::int64_t>::max());
     },
     [](const Settings& s) { return fmt::format("{}", s.sampling.top_k); }},
    {"top_p", "a number from 0 to 1", set_float<&Sampling::top_p, 0, 1>,
     get_float<&Sampling::top_p>},
    {"min_p", "a number from 0 to 1", set_float<&Sampling::min_p, 0, 1>,
     get_float<&Sampling::min_p>},
    {"repetition_penalty", "a number from 0.01 to 100; 1: off",
     [](Settings& s, std::string_view value, const Setting& self) {
       s.sampling.repetition_penalty = number<float>(self, value, 0.01f, 100.f);
     },
     get_float<&Sampling::repetition_penalty>},
    {"presence_penalty", "a number from -100 to 100",
     set_float<&Sampling::presence_penalty, -100, 100>, get_float<&Sampling::presence_penalty>},
    {"frequency_penalty", "a number from -100 to 100",
     set_float<&Sampling::frequency_penalty, -100, 100>, get_float<&Sampling::frequency_penalty>},
    {"seed", "a number, or random",
     [](Settings& s, std::string_view value, const Setting& self) {
       s.seed.reset();
       if (value != "random")
         s.seed = number<std::uint64_t>(self, value, 0, std::numeric_limits<std::uint64_t>::max());
     },
     [](const Settings& s) { return s.seed ? fmt::format("{}", *s.seed) : "random"; }},
    {"max_tokens", "a number of tokens, or none",
     [](Settings& s, std::string_view value, const Setting& self) {
       s.max_tokens.reset();
       if (value != "none")
         s.max_tokens =
             number<std::size_t>(self, value, 1, std::numeric_limits<std::size_t>::max());
     },
     [](const Settings& s) { return s.max_tokens ? fmt::format("{}", *s.max_tokens) : "none"; }},
    {"thinking", "on, off or default: as the template has it",
     [](Settings& s, std::string_view value, const Setting& self) {
       if (value == "default")
         s.thinking.reset();
       else
         s.thinking = on_or_off(self, value);
     },
     [](const Settings& s) { return std::string(s.thinking ? word(*s.thinking) : "default"); }},
    {"reasoning", "on: shown, or off: hidden",
     [](Settings& s, std::string_view value, const Setting& self) {
       s.reasoning = on_or_off(self, value);
     },
     [](const Settings& s) { return std::string(word(s.reasoning)); }},
    {"wrap", "on: lines are broken between words, or off",
     [](Settings& s, std::string_view value, const Setting& self) {
       s.wrap = on_or_off(self, value);
     },
     [](const Settings& s) { return std::string(word(s.wrap)); }},
    {"statistics", "on or off: a line after each answer",
     [](Settings& s, std::string_view value, const Setting& self) {
       s.statistics = on_or_off(self, value);
     },
     [](const Settings& s) { return std::string(word(s.statistics)); }},
};

}  // namespace

void set(Settings& settings, std::string_view name, std::string_view value) {
  std::string names;
  for (const Setting& setting : kSettings) {
    if (setting.name == name) return setting.set(settings, value, setting);
    names += (names.empty() ? "" : ", ") + std::string(setting.name);
  }
  base::raise(ErrorKind::kUsage, "'{}' cannot be set; what can: {}", name, names);
}

std::string list(const Settings& settings) {
  std::string text;
  for (const Setting& setting : kSettings)
    text += fmt::format("  {:<20}{:<10}{}\n", setting.name, setting.get(settings), setting.values);
  return text;
}

}  // namespace lemma::cli::chat
