// SPDX-License-Identifier: Apache-2.0
// Value: what an expression of a template evaluates to, with the meaning that Python gives it.
// Values are immutable (the sandbox of chat templates refuses every method that would change one);
// only namespaces, cyclers and joiners have state. Copies share. What operators, methods and
// filters do with values is elsewhere (operators.hpp, methods.hpp, filters.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/text.hpp"

namespace lemma::text::jinja {

class Renderer;
class Value;

/// How deep lists and dicts may nest, in what is read and in what a template makes.
inline constexpr std::uint32_t kMaxNesting = 200;

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  ///< keys(), values() or items() of a dict
  kRange,
  kIterator,   ///< what can be walked once: the result of map, select, ...
  kNamespace,  ///< namespace()
  kLoop,       ///< `loop`
  kFunction,   ///< a macro, a method, a global function
  kSlice,      ///< a:b:c, between brackets only
};

/// What stands behind a Value that is not a plain number.
struct Object {
  explicit Object(std::uint32_t own_depth = 1) : depth(own_depth) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  std::uint32_t depth;  ///< 1 + that of the deepest value inside
};

struct Arguments;
struct List;
struct Dict;
struct Range;
struct Iterator;
struct Namespace;
struct Undefined;
struct Function;

class Value {
 public:
  Value() = default;  ///< None
  static Value undefined(std::string message);
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  static Value string(Text text);
  static Value string(std::string_view template_text) {
    return string(Text(std::string(template_text)));
  }
  static Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  static Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  static Value dict(std::shared_ptr<Dict> dict);
  static Value iterator(std::string type, std::uint32_t depth, std::function<bool(Value&)> next);
  template <typename T>
  static Value object(Kind kind, std::shared_ptr<T> object) {
    Value value;
    value.kind_ = kind;
    value.object_ = std::move(object);
    return value;
  }

  Kind kind() const noexcept { return kind_; }
  bool is(Kind kind) const noexcept { return kind_ == kind; }
  bool is_number() const noexcept { return kind_ >= Kind::kBool && kind_ <= Kind::kFloat; }
  /// An int, or a bool, which is one in Python.
  bool is_integral() const noexcept { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_sequence() const noexcept { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  bool as_bool() const noexcept { return integer_ != 0; }
  std::int64_t as_int() const noexcept { return integer_; }  ///< of a bool too
  double as_double() const noexcept {
    return kind_ == Kind::kFloat ? real_ : static_cast<double>(integer_);
  }
  const Text& text() const;  ///< kString
  std::string_view bytes() const { return text().bytes; }
  std::size_t code_points() const;  ///< kString; counted once
  const List& list() const;         ///< kList, kTuple, kView
  const std::vector<Value>& items() const;
  const Dict& dict() const;  ///< kDict
  const Range& range() const;
  Iterator& iterator() const;
  Namespace& name_space() const;
  const Undefined& undefined() const;
  Function& function() const;  ///< kFunction, kLoop
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  template <typename T>
  std::shared_ptr<T> share() const {
    return std::static_pointer_cast<T>(object_);
  }
  const Object* identity() const noexcept { return object_.get(); }
  std::uint32_t depth() const noexcept { return object_ ? object_->depth : 0; }

 private:
  static Value sequence(Kind kind, std::vector<Value> items);

  Kind kind_ = Kind::kNone;
  union {
    std::int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

struct String : Object {
  Text text;
  std::size_t code_points = 0;
};

struct List : Object {
  std::vector<Value> items;
  std::string type;    ///< kView: dict_keys, dict_values or dict_items
  bool group = false;  ///< a tuple of groupby: has .grouper and .list
};

/// In order of insertion. Keys are equal where Python's are: 1, 1.0 and True are one key.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;

  /// The value at `key`, or null. Throws where the key is not hashable.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);

 private:
  /// The place of each key by its canonical spelling; filled once there are many.
  std::unordered_map<std::string, std::size_t> index_;
};

struct Range : Object {
  std::int64_t start = 0, stop = 0, step = 1;
  std::int64_t size() const noexcept;
  std::int64_t at(std::int64_t index) const noexcept { return start + index * step; }
};

struct Iterator : Object {
  std::string type;  ///< as Python calls it: generator, list_reverseiterator
  std::function<bool(Value&)> next;
};

struct Namespace : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Undefined : Object {
  std::string message;  ///< what a use that is more than printing or testing it raises
};

struct Slice : Object {
  Value start, stop, step;
};

/// What a call passes.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  std::size_t size() const noexcept { return positional.size() + keywords.size(); }
};

struct Function : Object {
  std::string type = "builtin_function_or_method";  ///< as Python calls it
  virtual Value call(Renderer& renderer, Arguments arguments) = 0;
  virtual std::string repr() const = 0;
  /// An attribute that a template may read.
  virtual std::optional<Value> attribute(Renderer&, std::string_view) { return std::nullopt; }
};

/// 1 + the deepest of `values`; throws where that is more than kMaxNesting.
std::uint32_t depth_over(const std::vector<Value>& values);
std::uint32_t depth_over(std::uint32_t depth);

/// A spelling that is the same for keys that are equal in Python. Throws for a list, dict, ...
std::string hash_key(const Value& key);

}  // namespace lemma::text::jinja
