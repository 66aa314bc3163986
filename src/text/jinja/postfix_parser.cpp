// SPDX-License-Identifier: Apache-2.0
// What may stand behind an operand: subscripts, calls, filters and tests.
#include <fmt/format.h>

#include "text/jinja/filters.hpp"
#include "text/jinja/parser.hpp"

namespace lemma::text::jinja {

ExpressionPtr ExpressionParser::postfix(ExpressionPtr operand) {
  for (;;) {
    if (is_operator(".") || is_operator("["))
      operand = subscript(std::move(operand));
    else if (is_operator("("))
      operand = call(std::move(operand));
    else
      return operand;
  }
}

ExpressionPtr ExpressionParser::filter_tail(ExpressionPtr operand) {
  for (;;) {
    if (is_operator("|"))
      operand = filters(std::move(operand), false);
    else if (is_name("is"))
      operand = test(std::move(operand));
    else if (is_operator("("))
      operand = call(std::move(operand));
    else
      return operand;
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr operand) {
  const Token& open = next();
  const Position at = open.at;
  if (open.text == ".") {
    if (current().type == TokenType::kName) {
      ExpressionPtr result = make(ExpressionKind::kAttribute, at);
      adopt(*result, std::move(operand));
      result->text = next().text;
      return result;
    }
    if (current().type != TokenType::kInteger) fail("expected name or number");
    ExpressionPtr index = make(ExpressionKind::kConstant, current().at);
    index->constant = Value::integer(next().integer);
    return binary(ExpressionKind::kItem, at, std::move(operand), std::move(index));
  }
  ExpressionPtr key = make(ExpressionKind::kTuple, at);
  while (!is_operator("]")) {
    if (!key->children.empty()) expect_operator(",");
    adopt(*key, subscribed());
  }
  next();
  if (key->children.size() == 1) {
    ExpressionPtr only = std::move(key->children.front());
    key = std::move(only);
  }
  return binary(ExpressionKind::kItem, at, std::move(operand), std::move(key));
}

ExpressionPtr ExpressionParser::subscribed() {
  const Position at = current().at;
  ExpressionPtr start = is_operator(":") ? nullptr : expression();
  if (!is_operator(":")) return start;
  next();
  ExpressionPtr result = make(ExpressionKind::kSlice, at);
  adopt(*result, std::move(start));
  const auto part = [&] {
    return is_operator("]") || is_operator(",") || is_operator(":") ? nullptr : expression();
  };
  adopt(*result, part());
  adopt(*result, skip_operator(":") ? part() : nullptr);
  return result;
}

std::unique_ptr<CallSyntax> ExpressionParser::call_syntax() {
  const Position open = current().at;
  expect_operator("(");
  auto result = std::make_unique<CallSyntax>();
  const auto ensure = [&](bool condition) {
    if (!condition) fail_at(open, "invalid syntax for function call expression");
  };
  while (!is_operator(")")) {
    if (skip_operator("*")) {
      ensure(!result->star && !result->double_star);
      result->star = expression();
    } else if (skip_operator("**")) {
      ensure(!result->double_star);
      result->double_star = expression();
    } else if (current().type == TokenType::kName && is_operator(look(), "=")) {
      ensure(!result->double_star);
      std::string key = next().text;
      next();
      result->keywords.emplace_back(std::move(key), expression());
    } else {
      ensure(!result->star && !result->double_star && result->keywords.empty());
      result->positional.push_back(expression());
    }
    if (!is_operator(")")) expect_operator(",");
  }
  next();
  return result;
}

void ExpressionParser::adopt_call(Expression& parent) {
  const auto account = [&](const ExpressionPtr& argument) {
    if (argument) deepen(parent, *argument);
  };
  for (const ExpressionPtr& argument : parent.call->positional) account(argument);
  for (const auto& [key, argument] : parent.call->keywords) account(argument);
  account(parent.call->star);
  account(parent.call->double_star);
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  ExpressionPtr result = make(ExpressionKind::kCall, current().at);
  adopt(*result, std::move(callee));
  result->call = call_syntax();
  adopt_call(*result);
  return result;
}

void ExpressionParser::check_known(const char* what, bool known, const Token& token,
                                   std::string_view name) const {
  if (known || soft_) return;
  fail_at(token.at, fmt::format("No {} named '{}'.", what, name));
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr operand, bool inline_start) {
  while (inline_start || is_operator("|")) {
    if (!inline_start) next();
    inline_start = false;
    const Token& token = current();
    ExpressionPtr result = make(ExpressionKind::kFilter, token.at);
    result->text = expect_any_name();
    while (skip_operator(".")) result->text += "." + expect_any_name();
    check_known("filter", find_filter(result->text) != nullptr, token, result->text);
    adopt(*result, std::move(operand));
    result->call = is_operator("(") ? call_syntax() : std::make_unique<CallSyntax>();
    adopt_call(*result);
    operand = std::move(result);
  }
  return operand;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr operand) {
  const Position at = next().at;
  const bool negated = skip_name("not");
  const Token& token = current();
  ExpressionPtr result = make(ExpressionKind::kTest, at);
  result->text = expect_any_name();
  while (skip_operator(".")) result->text += "." + expect_any_name();
  check_known("test", find_test(result->text) != nullptr, token, result->text);
  adopt(*result, std::move(operand));
  result->call = std::make_unique<CallSyntax>();
  const TokenType type = current().type;
  const bool argument =
      type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat ||
      is_operator("[") || is_operator("{") ||
      (type == TokenType::kName && !is_name("else") && !is_name("or") && !is_name("and"));
  if (is_operator("(")) {
    result->call = call_syntax();
  } else if (argument) {
    if (is_name("is")) fail("You cannot chain multiple tests with is");
    const Level level(*this);
    result->call->positional.push_back(postfix(primary(false)));
  }
  adopt_call(*result);
  if (!negated) return result;
  ExpressionPtr outer = make(ExpressionKind::kNot, at);
  adopt(*outer, std::move(result));
  return outer;
}

}  // namespace lemma::text::jinja
