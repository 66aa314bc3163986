// SPDX-License-Identifier: Apache-2.0
// The functions that every template knows: Jinja's, and the two that chat templates add.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <memory>

#include "text/jinja/arguments.hpp"
#include "text/jinja/evaluation.hpp"
#include "text/jinja/methods.hpp"
#include "text/jinja/renderer.hpp"

namespace lemma::text::jinja {

void set_namespace_attribute(Namespace& name_space, std::string_view name, Value value) {
  if (name.starts_with('_'))
    base::raise(ErrorKind::kTemplate,
                "a namespace of a chat template has no attributes that start with an underscore: "
                "'{}'",
                name);
  name_space.set(name, std::move(value));
}

namespace {

constexpr std::int64_t kMaxRange = 100'000;  // as in Jinja's sandbox

Value range(Renderer&, const Value&, Arguments arguments) {
  if (!arguments.keywords.empty())
    base::raise(ErrorKind::kTemplate, "range() takes no keyword arguments");
  const std::size_t count = arguments.positional.size();
  const Bound bound("range", std::move(arguments), {"start", "stop", "step"}, 1);
  auto result = std::make_shared<Range>();
  result->start = count == 1 ? 0 : bound.integer(0);
  result->stop = bound.integer(count == 1 ? 0 : 1);
  result->step = bound.integer(2, 1);
  if (result->step == 0) base::raise(ErrorKind::kTemplate, "range() arg 3 must not be zero");
  const std::int64_t size = result->size();
  if (size < 0 || size > kMaxRange)
    base::raise(ErrorKind::kTemplate,
                "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  return Value::object(Kind::kRange, std::move(result));
}

/// dict(mapping or pairs, key=value, ...).
std::shared_ptr<Dict> make_dict(Renderer& renderer, Arguments arguments) {
  auto dict = std::make_shared<Dict>();
  if (arguments.positional.size() > 1)
    base::raise(ErrorKind::kTemplate, "dict expected at most 1 argument, got {}",
                arguments.positional.size());
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().entries) dict->set(key, value);
    } else {
      for (const Value& pair : to_items(renderer.budget(), source)) {
        const std::vector<Value> parts = to_items(renderer.budget(), pair);
        if (parts.size() != 2)
          base::raise(ErrorKind::kTemplate,
                      "dictionary update sequence element has length {}; 2 is required",
                      parts.size());
        dict->set(parts[0], parts[1]);
      }
    }
  }
  for (auto& [key, value] : arguments.keywords) dict->set(Value::string(key), std::move(value));
  renderer.budget().allocate(dict->entries.size() * 2 * sizeof(Value));
  return dict;
}

Value dict(Renderer& renderer, const Value&, Arguments arguments) {
  return Value::dict(make_dict(renderer, std::move(arguments)));
}

Value name_space(Renderer& renderer, const Value&, Arguments arguments) {
  auto result = std::make_shared<Namespace>();
  const std::shared_ptr<Dict> given = make_dict(renderer, std::move(arguments));
  for (const auto& [key, value] : given->entries) {
    if (!key.is(Kind::kString))
      base::raise(ErrorKind::kTemplate, "the names of a namespace are strings");
    set_namespace_attribute(*result, key.bytes(), value);
  }
  renderer.keep(result);
  return Value::object(Kind::kNamespace, std::move(result));
}

Value raise_exception(Renderer& renderer, const Value&, Arguments arguments) {
  const Bound bound("raise_exception", std::move(arguments), {"message"}, 1);
  base::raise(ErrorKind::kTemplate, "{}", to_text(renderer.budget(), bound[0]).bytes);
}

std::tm civil(const CivilTime& time) {
  std::tm result{};
  result.tm_year = time.year - 1900;
  result.tm_mon = time.month - 1;
  result.tm_mday = time.day;
  result.tm_hour = time.hour;
  result.tm_min = time.minute;
  result.tm_sec = time.second;
  const std::chrono::sys_days day = std::chrono::year(time.year) /
                                    std::chrono::month(static_cast<unsigned>(time.month)) /
                                    std::chrono::day(static_cast<unsigned>(time.day));
  const std::chrono::sys_days first = std::chrono::year(time.year) / 1 / 1;
  result.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  result.tm_yday = static_cast<int>((day - first).count());
  return result;
}

std::tm local_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm result{};
  ::localtime_r(&now, &result);
  return result;
}

Value strftime_now(Renderer& renderer, const Value&, Arguments arguments) {
  const Bound bound("strftime_now", std::move(arguments), {"format"}, 1);
  const std::string& format = bound.text(0).bytes;
  if (format.size() > 1000)
    base::raise(ErrorKind::kTemplate, "strftime_now(): the format is too long");
  // A time without a zone has no offset and no name for it; the clock here has whole seconds.
  std::string known;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      known += format[i];
      continue;
    }
    const char directive = format[++i];
    if (directive == 'f')
      known += "000000";
    else if (directive != 'z' && directive != 'Z')
      known += {'%', directive};
  }
  if (known.empty()) return Value::string("");
  const auto& now = renderer.options().now;
  const std::tm time = now ? civil(*now) : local_now();
  // A mark at the end tells an empty result from one that does not fit.
  std::vector<char> buffer(known.size() * 32 + 64);
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), (known + "|").c_str(), &time);
  if (size == 0) base::raise(ErrorKind::kTemplate, "strftime_now(): the format is not supported");
  return Value::string(std::string_view(buffer.data(), size - 1));
}

/// cycler(a, b, ...): next() walks round and round.
struct Cycler : Function {
  Cycler() { type = "Cycler"; }
  Value call(Renderer&, Arguments) override {
    base::raise(ErrorKind::kTemplate, "'Cycler' object is not callable");
  }
  std::string repr() const override {
    base::raise(ErrorKind::kTemplate, "a cycler is printed, not called");
  }
  std::optional<Value> attribute(Renderer& renderer, std::string_view name) override;

  Value items;
  std::size_t at = 0;
};

Value cycler_next(Renderer&, const Value& self, Arguments arguments) {
  const Bound bound("next", std::move(arguments), {});
  auto& cycler = self.as<Cycler>();
  const std::vector<Value>& items = cycler.items.items();
  const Value result = items[cycler.at];
  cycler.at = (cycler.at + 1) % items.size();
  return result;
}

Value cycler_reset(Renderer&, const Value& self, Arguments arguments) {
  const Bound bound("reset", std::move(arguments), {});
  self.as<Cycler>().at = 0;
  return {};
}

std::optional<Value> Cycler::attribute(Renderer&, std::string_view name) {
  if (name == "current") return items.items()[at];
  return std::nullopt;
}

Value make_cycler(Renderer&, const Value&, Arguments arguments) {
  if (!arguments.keywords.empty())
    base::raise(ErrorKind::kTemplate, "cycler() takes no keyword arguments");
  if (arguments.positional.empty())
    base::raise(ErrorKind::kTemplate, "at least one item has to be provided");
  auto cycler = std::make_shared<Cycler>();
  cycler->items = Value::tuple(std::move(arguments.positional));
  cycler->depth = depth_over(cycler->items.depth());
  return Value::object(Kind::kFunction, std::static_pointer_cast<Function>(cycler));
}

/// joiner(separator): nothing at the first call, the separator at every later one.
struct Joiner : Function {
  Joiner() { type = "Joiner"; }
  Value call(Renderer&, Arguments arguments) override {
    const Bound bound("joiner", std::move(arguments), {});
    return std::exchange(used, true) ? separator : Value::string("");
  }
  std::string repr() const override {
    base::raise(ErrorKind::kTemplate, "a joiner is printed, not called");
  }

  Value separator;
  bool used = false;
};

Value make_joiner(Renderer&, const Value&, Arguments arguments) {
  const Bound bound("joiner", std::move(arguments), {"sep"});
  auto joiner = std::make_shared<Joiner>();
  joiner->separator = bound.has(0) ? bound[0] : Value::string(", ");
  joiner->depth = depth_over(joiner->separator.depth());
  return Value::object(Kind::kFunction, std::static_pointer_cast<Function>(joiner));
}

Value refuse_lipsum(Renderer&, const Value&, Arguments) {
  base::raise(ErrorKind::kTemplate, "lipsum() is not supported");
}

}  // namespace

std::optional<Value> cycler_method(const Value& object, std::string_view name) {
  if (!dynamic_cast<const Cycler*>(object.identity())) return std::nullopt;
  if (name == "next") return make_builtin(name, object, cycler_next);
  if (name == "reset") return make_builtin(name, object, cycler_reset);
  return std::nullopt;
}

std::optional<Value> find_global(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, BuiltinFunction>, 8> kGlobals = {
      {{"range", range},
       {"dict", dict},
       {"namespace", name_space},
       {"raise_exception", raise_exception},
       {"strftime_now", strftime_now},
       {"cycler", make_cycler},
       {"joiner", make_joiner},
       {"lipsum", refuse_lipsum}}};
  for (const auto& [own, function] : kGlobals)
    if (own == name) return make_builtin(name, Value(), function);
  return std::nullopt;
}

}  // namespace lemma::text::jinja
