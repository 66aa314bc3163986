// SPDX-License-Identifier: Apache-2.0
// Expressions.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "text/jinja/evaluation.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/methods.hpp"
#include "text/jinja/renderer.hpp"

namespace lemma::text::jinja {

Value Renderer::evaluate(const Expression& expression, const ScopePtr& scope) {
  const Depth depth(*this);
  budget_.charge(1);
  // On an error the innermost expression stays noted: it is the one to name.
  const Expression* outer = std::exchange(expression_, &expression);
  Value result = evaluate_inner(expression, scope);
  expression_ = outer;
  return result;
}

Value Renderer::evaluate_inner(const Expression& expression, const ScopePtr& scope) {
  const auto child = [&](std::size_t i) { return evaluate(*expression.children[i], scope); };
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.constant;
    case ExpressionKind::kName:
      return evaluate_name(expression, scope);
    case ExpressionKind::kList:
      return Value::list(evaluate_all(expression.children, scope));
    case ExpressionKind::kTuple:
      return Value::tuple(evaluate_all(expression.children, scope));
    case ExpressionKind::kDict:
      return evaluate_dict(expression, scope);
    case ExpressionKind::kAttribute:
      return get_attribute(child(0), expression.text);
    case ExpressionKind::kItem: {
      const Value object = child(0);
      return get_item(object, child(1));
    }
    case ExpressionKind::kSlice:
      return evaluate_slice(expression, scope);
    case ExpressionKind::kCall: {
      const Value callee = child(0);
      return call(callee, evaluate_call(*expression.call, scope));
    }
    case ExpressionKind::kFilter:
      return evaluate_filter(expression, scope, nullptr);
    case ExpressionKind::kTest: {
      const Value value = child(0);
      if (!find_test(expression.text))
        base::raise(ErrorKind::kTemplate, "No test named '{}' found.", expression.text);
      return Value::boolean(test(expression.text, value, evaluate_call(*expression.call, scope)));
    }
    case ExpressionKind::kNot:
      return Value::boolean(!truthy(child(0)));
    case ExpressionKind::kAnd: {
      Value left = child(0);
      return truthy(left) ? child(1) : left;
    }
    case ExpressionKind::kOr: {
      Value left = child(0);
      return truthy(left) ? left : child(1);
    }
    case ExpressionKind::kNegative:
      return negate(child(0));
    case ExpressionKind::kPositive: {
      const Value value = child(0);
      if (value.is_number()) return value.is(Kind::kFloat) ? value : Value::integer(value.as_int());
      require_defined(value);
      base::raise(ErrorKind::kTemplate, "bad operand type for unary +: '{}'", type_name(value));
    }
    case ExpressionKind::kArithmetic: {
      const Value left = child(0);
      return arithmetic(budget_, expression.arithmetic, left, child(1));
    }
    case ExpressionKind::kConcatenate:
      return evaluate_concatenation(expression, scope);
    case ExpressionKind::kCompare:
      return evaluate_compare(expression, scope);
    case ExpressionKind::kConditional:
      return evaluate_conditional(expression, scope);
    case ExpressionKind::kNamespaceTarget:
      break;
  }
  base::raise(ErrorKind::kInternal, "an assignment target was evaluated");
}

Value Renderer::evaluate_name(const Expression& expression, const ScopePtr& scope) {
  for (const Scope* each = scope.get(); each; each = each->parent.get())
    if (const Value* found = each->find(expression.name)) return *found;
  if (has_global_[expression.name]) return globals_[expression.name];
  return Value::undefined(fmt::format("'{}' is undefined", syntax_.names[expression.name]));
}

std::vector<Value> Renderer::evaluate_all(const std::vector<ExpressionPtr>& expressions,
                                          const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const ExpressionPtr& each : expressions) values.push_back(evaluate(*each, scope));
  return values;
}

Value Renderer::evaluate_dict(const Expression& expression, const ScopePtr& scope) {
  auto dict = std::make_shared<Dict>();
  for (std::size_t i = 0; i < expression.children.size(); i += 2) {
    Value key = evaluate(*expression.children[i], scope);
    dict->set(std::move(key), evaluate(*expression.children[i + 1], scope));
  }
  return Value::dict(std::move(dict));
}

Value Renderer::evaluate_slice(const Expression& expression, const ScopePtr& scope) {
  const auto part = [&](std::size_t i) {
    return expression.children[i] ? evaluate(*expression.children[i], scope) : Value();
  };
  auto slice = std::make_shared<Slice>();
  slice->start = part(0);
  slice->stop = part(1);
  slice->step = part(2);
  return Value::object(Kind::kSlice, std::move(slice));
}

namespace {

Order order_of(Comparison comparison) {
  switch (comparison) {
    case Comparison::kLess:
      return Order::kLess;
    case Comparison::kLessEqual:
      return Order::kLessEqual;
    case Comparison::kGreater:
      return Order::kGreater;
    default:
      return Order::kGreaterEqual;
  }
}

bool compare(Budget& budget, Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::kEqual:
      return equal(budget, left, right);
    case Comparison::kNotEqual:
      return !equal(budget, left, right);
    case Comparison::kIn:
      return contains(budget, right, left);
    case Comparison::kNotIn:
      return !contains(budget, right, left);
    default:
      return ordered(budget, order_of(comparison), left, right);
  }
}

}  // namespace

Value Renderer::evaluate_compare(const Expression& expression, const ScopePtr& scope) {
  Value left = evaluate(*expression.children[0], scope);
  for (std::size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = evaluate(*expression.children[i + 1], scope);
    if (!compare(budget_, expression.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Renderer::evaluate_concatenation(const Expression& expression, const ScopePtr& scope) {
  TextBuilder out;
  for (const ExpressionPtr& each : expression.children) {
    append_text(budget_, out, evaluate(*each, scope));
    if (out.size() > budget_.limits().output) budget_.allocate(out.size());
  }
  budget_.allocate(out.size());
  return Value::string(out.take());
}

Value Renderer::evaluate_conditional(const Expression& expression, const ScopePtr& scope) {
  if (truthy(evaluate(*expression.children[0], scope)))
    return evaluate(*expression.children[1], scope);
  if (expression.children[2]) return evaluate(*expression.children[2], scope);
  return Value::undefined(
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was "
                  "defined.",
                  expression.at.line));
}

Arguments Renderer::evaluate_call(const CallSyntax& call, const ScopePtr& scope) {
  Arguments arguments;
  arguments.positional = evaluate_all(call.positional, scope);
  for (const auto& [key, value] : call.keywords)
    arguments.keywords.emplace_back(key, evaluate(*value, scope));
  if (call.star) {
    const std::vector<Value> more = to_items(budget_, evaluate(*call.star, scope));
    arguments.positional.insert(arguments.positional.end(), more.begin(), more.end());
  }
  if (call.double_star) {
    const Value more = evaluate(*call.double_star, scope);
    if (!more.is(Kind::kDict))
      base::raise(ErrorKind::kTemplate, "argument after ** must be a mapping, not {}",
                  type_name(more));
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is(Kind::kString)) base::raise(ErrorKind::kTemplate, "keywords must be strings");
      arguments.keywords.emplace_back(key.bytes(), value);
    }
  }
  for (std::size_t i = 0; i < arguments.keywords.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (arguments.keywords[i].first == arguments.keywords[j].first)
        base::raise(ErrorKind::kTemplate, "got multiple values for keyword argument '{}'",
                    arguments.keywords[i].first);
  return arguments;
}

Value Renderer::evaluate_filter(const Expression& expression, const ScopePtr& scope,
                                const Value* input) {
  const Depth depth(*this);
  const ExpressionPtr& operand = expression.children[0];
  // In a filter block the innermost filter of the chain has no operand: it takes the block's text.
  Value value = !operand ? *input
                : input && operand->kind == ExpressionKind::kFilter
                    ? evaluate_filter(*operand, scope, input)
                    : evaluate(*operand, scope);
  Arguments arguments = evaluate_call(*expression.call, scope);
  const Expression* outer = std::exchange(expression_, &expression);
  if (!find_filter(expression.text))
    base::raise(ErrorKind::kTemplate, "No filter named '{}' found.", expression.text);
  Value result = filter(expression.text, value, std::move(arguments));
  expression_ = outer;
  return result;
}

Value Renderer::filter(std::string_view name, const Value& value, Arguments arguments) {
  const Filter* found = find_filter(name);
  if (!found) base::raise(ErrorKind::kTemplate, "No filter named '{}'.", name);
  return (*found)(*this, value, std::move(arguments));
}

bool Renderer::test(std::string_view name, const Value& value, Arguments arguments) {
  const Test* found = find_test(name);
  if (!found) base::raise(ErrorKind::kTemplate, "No test named '{}'.", name);
  return (*found)(*this, value, std::move(arguments));
}

Value Renderer::call(const Value& callee, Arguments arguments) {
  require_defined(callee);
  if (!callee.is(Kind::kFunction) && !callee.is(Kind::kLoop))
    base::raise(ErrorKind::kTemplate, "'{}' object is not callable", type_name(callee));
  return callee.function().call(*this, std::move(arguments));
}

namespace {

Value missing_attribute(const Value& object, std::string_view name) {
  TextBuilder quoted;
  append_quoted(quoted, Text(std::string(name)));
  return Value::undefined(
      fmt::format("'{}' has no attribute {}", describe(object), quoted.take().bytes));
}

}  // namespace

Value Renderer::get_attribute(const Value& object, std::string_view name) {
  require_defined(object);
  if (auto found = find_attribute(*this, object, name)) return *std::move(found);
  if (object.is(Kind::kDict))
    if (const Value* found = object.dict().find(name)) return *found;
  return missing_attribute(object, name);
}

Value Renderer::get_item(const Value& object, const Value& key) {
  require_defined(object);
  if (auto found = find_item(budget_, object, key)) return *std::move(found);
  if (key.is(Kind::kSlice)) {
    if (object.is(Kind::kDict)) base::raise(ErrorKind::kTemplate, "unhashable type: 'slice'");
    base::raise(ErrorKind::kTemplate, "'{}' object is not subscriptable", type_name(object));
  }
  if (key.is(Kind::kString)) {
    if (auto found = find_attribute(*this, object, key.bytes())) return *std::move(found);
    return missing_attribute(object, key.bytes());
  }
  return Value::undefined(
      fmt::format("{} has no element {}", describe(object), repr(budget_, key).bytes));
}

}  // namespace lemma::text::jinja
