// SPDX-License-Identifier: Apache-2.0
// Attributes and methods of values, as the immutable sandbox shows them: methods of Python's types
// that change nothing. What the sandbox refuses reads as an undefined value that says so; a method
// that Python has and this engine lacks is an error, never another meaning.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.hpp"

namespace lemma::text::jinja {

using BuiltinFunction = Value (*)(Renderer&, const Value& self, Arguments arguments);

/// A function with a value that it belongs to: a method, or a global with None.
struct Builtin : Function {
  Builtin(std::string own_name, Value own_self, BuiltinFunction own_function);
  Value call(Renderer& renderer, Arguments arguments) override;
  std::string repr() const override;

  std::string name;
  Value self;
  BuiltinFunction function;
};

Value make_builtin(std::string_view name, Value self, BuiltinFunction function);

/// getattr(object, name), or nothing where Python raises AttributeError.
std::optional<Value> find_attribute(Renderer& renderer, const Value& object, std::string_view name);

/// next() and reset() of a cycler, which is a function to everyone else.
std::optional<Value> cycler_method(const Value& object, std::string_view name);

/// The method of a string, or null. Throws for one that is not supported.
BuiltinFunction find_string_method(std::string_view name);
/// The part of them that ask about characters: isdigit, ...
BuiltinFunction find_string_question(std::string_view name);

}  // namespace lemma::text::jinja
