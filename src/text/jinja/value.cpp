// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/raise.hpp"
#include "text/jinja/operators.hpp"

namespace lemma::text::jinja {
namespace {

/// Dicts up to this size are searched entry by entry.
constexpr std::size_t kLinear = 8;

}  // namespace

Value Value::undefined(std::string message) {
  auto object = std::make_shared<Undefined>();
  object->message = std::move(message);
  return Value::object(Kind::kUndefined, std::move(object));
}

Value Value::boolean(bool value) {
  Value result;
  result.kind_ = Kind::kBool;
  result.integer_ = value ? 1 : 0;
  return result;
}

Value Value::integer(std::int64_t value) {
  Value result;
  result.kind_ = Kind::kInt;
  result.integer_ = value;
  return result;
}

Value Value::real(double value) {
  Value result;
  result.kind_ = Kind::kFloat;
  result.real_ = value;
  return result;
}

Value Value::string(Text text) {
  auto object = std::make_shared<String>();
  object->code_points = count_code_points(text.bytes);
  object->text = std::move(text);
  return Value::object(Kind::kString, std::move(object));
}

Value Value::sequence(Kind kind, std::vector<Value> items) {
  auto object = std::make_shared<List>();
  object->depth = depth_over(items);
  object->items = std::move(items);
  return Value::object(kind, std::move(object));
}

Value Value::dict(std::shared_ptr<Dict> dict) {
  std::uint32_t deepest = 0;
  for (const auto& [key, value] : dict->entries)
    deepest = std::max({deepest, key.depth(), value.depth()});
  dict->depth = depth_over(deepest);
  return Value::object(Kind::kDict, std::move(dict));
}

Value Value::iterator(std::string type, std::uint32_t depth, std::function<bool(Value&)> next) {
  auto object = std::make_shared<Iterator>();
  object->depth = depth_over(depth);
  object->type = std::move(type);
  object->next = std::move(next);
  return Value::object(Kind::kIterator, std::move(object));
}

const Text& Value::text() const {
  return as<String>().text;
}
std::size_t Value::code_points() const {
  return as<String>().code_points;
}
const List& Value::list() const {
  return as<List>();
}
const std::vector<Value>& Value::items() const {
  return as<List>().items;
}
const Dict& Value::dict() const {
  return as<Dict>();
}
const Range& Value::range() const {
  return as<Range>();
}
Iterator& Value::iterator() const {
  return as<Iterator>();
}
Namespace& Value::name_space() const {
  return as<Namespace>();
}
const Undefined& Value::undefined() const {
  return as<Undefined>();
}
Function& Value::function() const {
  return as<Function>();
}

std::uint32_t depth_over(std::uint32_t depth) {
  if (depth >= kMaxNesting)
    base::raise(ErrorKind::kTemplate, "values nest more than {} deep", kMaxNesting);
  return depth + 1;
}

std::uint32_t depth_over(const std::vector<Value>& values) {
  std::uint32_t deepest = 0;
  for (const Value& value : values) deepest = std::max(deepest, value.depth());
  return depth_over(deepest);
}

namespace {

/// A number below 2^63 that is whole has the spelling of the int that it equals.
std::string number_key(const Value& key) {
  if (key.is_integral()) return fmt::format("i{}", key.as_int());
  const double value = key.as_double();
  if (value == std::trunc(value) && std::fabs(value) < 0x1p63)
    return fmt::format("i{}", static_cast<std::int64_t>(value));
  return fmt::format("f{}", value);
}

}  // namespace

std::string hash_key(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return fmt::format("s{}", key.bytes());
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return number_key(key);
    case Kind::kNone:
      return "n";
    case Kind::kUndefined:
      return "u";
    case Kind::kTuple: {
      // Lengths keep ("a,b",) and ("a", "b") apart.
      std::string result = "t";
      for (const Value& item : key.items()) {
        const std::string part = hash_key(item);
        result += fmt::format("{}:{}", part.size(), part);
      }
      return result;
    }
    case Kind::kRange: {
      const Range& range = key.range();
      return fmt::format("r{},{},{}", range.start, range.stop, range.step);
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kSlice:
      base::raise(ErrorKind::kTemplate, "unhashable type: '{}'", type_name(key));
    default:
      return fmt::format("o{}", static_cast<const void*>(key.identity()));
  }
}

const Value* Dict::find(const Value& key) const {
  if (key.is(Kind::kString)) return find(key.bytes());
  const std::string spelling = hash_key(key);
  if (!index_.empty()) {
    const auto found = index_.find(spelling);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries)
    if (!name.is(Kind::kString) && hash_key(name) == spelling) return &value;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(fmt::format("s{}", key));
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries)
    if (name.is(Kind::kString) && name.bytes() == key) return &value;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  std::string spelling = hash_key(key);
  entries.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.emplace(std::move(spelling), entries.size() - 1);
  } else if (entries.size() > kLinear) {
    for (std::size_t i = 0; i < entries.size(); ++i) index_.emplace(hash_key(entries[i].first), i);
  }
}

std::int64_t Range::size() const noexcept {
  const auto low = static_cast<std::uint64_t>(start), high = static_cast<std::uint64_t>(stop);
  if (step > 0 && start < stop)
    return static_cast<std::int64_t>((high - low - 1) / static_cast<std::uint64_t>(step) + 1);
  if (step < 0 && start > stop)
    return static_cast<std::int64_t>((low - high - 1) / (0 - static_cast<std::uint64_t>(step)) + 1);
  return 0;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [own, value] : attributes)
    if (own == name) return &value;
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [own, old] : attributes)
    if (own == name) {
      old = std::move(value);
      return;
    }
  attributes.emplace_back(std::string(name), std::move(value));
}

}  // namespace lemma::text::jinja
