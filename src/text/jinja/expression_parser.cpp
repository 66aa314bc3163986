// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/parser.hpp"

namespace lemma::text::jinja {
namespace {

constexpr std::uint32_t kMaxLevels = 150;  // brackets and blocks inside each other

}  // namespace

ExpressionParser::ExpressionParser(std::string_view source) : tokens_(tokenize(source)) {
  for (const char* name : {"loop", "caller", "kwargs", "varargs"}) intern(name);
}

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (parser.level_ >= kMaxLevels) parser.fail("brackets and blocks nest too deep");
  ++parser.level_;
}

const Token& ExpressionParser::next() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_operator(std::string_view op) {
  if (!is_operator(op)) return false;
  next();
  return true;
}

std::string ExpressionParser::describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template data";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kString:
      return "string";
    case TokenType::kInteger:
      return "integer";
    case TokenType::kFloat:
      return "float";
    case TokenType::kEnd:
      return "end of template";
    default:
      return token.text;
  }
}

void ExpressionParser::unexpected() const {
  fail(fmt::format("unexpected '{}'", describe(current())));
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op))
    fail(fmt::format("expected token '{}', got '{}'", op, describe(current())));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name))
    fail(fmt::format("expected token '{}', got '{}'", name, describe(current())));
}

std::string ExpressionParser::expect_any_name() {
  if (current().type != TokenType::kName)
    fail(fmt::format("expected token 'name', got '{}'", describe(current())));
  return next().text;
}

NameId ExpressionParser::intern(std::string_view name) {
  const auto [entry, is_new] =
      ids_.try_emplace(std::string(name), static_cast<NameId>(ids_.size()));
  if (is_new) syntax_.names.emplace_back(name);
  return entry->second;
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, Position at) {
  auto result = std::make_unique<Expression>();
  result->kind = kind;
  result->at = at;
  return result;
}

void ExpressionParser::deepen(Expression& parent, const Expression& child) {
  constexpr std::uint32_t kMaxTree = 400;
  parent.depth = std::max(parent.depth, child.depth + 1);
  if (parent.depth > kMaxTree) fail_at(parent.at, "the expression nests too deep");
}

void ExpressionParser::adopt(Expression& parent, ExpressionPtr child) {
  if (child) {
    deepen(parent, *child);
  }
  parent.children.push_back(std::move(child));
}

ExpressionPtr ExpressionParser::binary(ExpressionKind kind, Position at, ExpressionPtr left,
                                       ExpressionPtr right) {
  ExpressionPtr result = make(kind, at);
  adopt(*result, std::move(left));
  adopt(*result, std::move(right));
  return result;
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const Level level(*this);
  return with_condition ? conditional() : disjunction();
}

ExpressionPtr ExpressionParser::conditional() {
  const bool outer = soft_;
  ExpressionPtr value = disjunction();
  while (is_name("if")) {
    const Position at = next().at;
    soft_ = true;
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = skip_name("else") ? expression() : nullptr;
    ExpressionPtr result =
        binary(ExpressionKind::kConditional, at, std::move(condition), std::move(value));
    adopt(*result, std::move(otherwise));
    value = std::move(result);
  }
  soft_ = outer;
  return value;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr left = conjunction();
  while (is_name("or")) {
    const Position at = next().at;
    left = binary(ExpressionKind::kOr, at, std::move(left), conjunction());
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  while (is_name("and")) {
    const Position at = next().at;
    left = binary(ExpressionKind::kAnd, at, std::move(left), negation());
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Level level(*this);
  ExpressionPtr result = make(ExpressionKind::kNot, next().at);
  adopt(*result, negation());
  return result;
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  ExpressionPtr left = sum();
  ExpressionPtr result;
  for (;;) {
    const Token& token = current();
    const auto op = std::find(kOperators.begin(), kOperators.end(), token.text);
    Comparison comparison = Comparison::kIn;
    if (token.type == TokenType::kOperator && op != kOperators.end()) {
      comparison = static_cast<Comparison>(op - kOperators.begin());
      next();
    } else if (is_name("in")) {
      next();
    } else if (is_name("not") && is_name(look(), "in")) {
      comparison = Comparison::kNotIn;
      next();
      next();
    } else {
      break;
    }
    if (!result) {
      result = make(ExpressionKind::kCompare, token.at);
      adopt(*result, std::move(left));
    }
    result->comparisons.push_back(comparison);
    adopt(*result, sum());
  }
  return result ? std::move(result) : std::move(left);
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (is_operator("+") || is_operator("-")) {
    const Token& op = next();
    const bool adds = op.text == "+";
    left = binary(ExpressionKind::kArithmetic, op.at, std::move(left), concatenation());
    left->arithmetic = adds ? Arithmetic::kAdd : Arithmetic::kSub;
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr first = product();
  if (!is_operator("~")) return first;
  ExpressionPtr result = make(ExpressionKind::kConcatenate, current().at);
  adopt(*result, std::move(first));
  while (skip_operator("~")) adopt(*result, product());
  return result;
}

ExpressionPtr ExpressionParser::product() {
  constexpr std::array<std::pair<std::string_view, Arithmetic>, 4> kOperators = {
      {{"*", Arithmetic::kMul},
       {"/", Arithmetic::kDiv},
       {"//", Arithmetic::kFloorDiv},
       {"%", Arithmetic::kMod}}};
  ExpressionPtr left = power();
  for (;;) {
    const auto op = std::find_if(kOperators.begin(), kOperators.end(),
                                 [&](const auto& entry) { return is_operator(entry.first); });
    if (op == kOperators.end()) return left;
    const Position at = next().at;
    left = binary(ExpressionKind::kArithmetic, at, std::move(left), power());
    left->arithmetic = op->second;
  }
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (is_operator("**")) {
    const Position at = next().at;
    left = binary(ExpressionKind::kArithmetic, at, std::move(left), unary(true));
    left->arithmetic = Arithmetic::kPow;
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filter) {
  ExpressionPtr result;
  if (is_operator("-") || is_operator("+")) {
    const Level level(*this);
    const Token& sign = next();
    result =
        make(sign.text == "-" ? ExpressionKind::kNegative : ExpressionKind::kPositive, sign.at);
    adopt(*result, unary(false));
  } else {
    result = primary(false);
  }
  result = postfix(std::move(result));
  return with_filter ? filter_tail(std::move(result)) : std::move(result);
}

void ExpressionParser::use_special(std::string_view name) {
  for (MacroSyntax* macro : macros_) {
    if (name == "caller") macro->uses_caller = true;
    if (name == "kwargs") macro->uses_kwargs = true;
    if (name == "varargs") macro->uses_varargs = true;
  }
}

ExpressionPtr ExpressionParser::name(bool namespaces) {
  const Token& token = next();
  const std::string& text = token.text;
  ExpressionPtr result = make(ExpressionKind::kConstant, token.at);
  if (text == "true" || text == "True") {
    result->constant = Value::boolean(true);
  } else if (text == "false" || text == "False") {
    result->constant = Value::boolean(false);
  } else if (text == "none" || text == "None") {
    result->constant = Value();
  } else {
    result->kind = ExpressionKind::kName;
    result->name = intern(text);
    if (namespaces && skip_operator(".")) {
      result->kind = ExpressionKind::kNamespaceTarget;
      result->text = expect_any_name();
    } else {
      use_special(text);
    }
  }
  return result;
}

ExpressionPtr ExpressionParser::primary(bool namespaces) {
  const Token& token = current();
  ExpressionPtr result;
  switch (token.type) {
    case TokenType::kName:
      return name(namespaces);
    case TokenType::kString: {
      result = make(ExpressionKind::kConstant, token.at);
      std::string text;
      while (current().type == TokenType::kString) text += next().text;
      result->constant = Value::string(text);
      return result;
    }
    case TokenType::kInteger:
      result = make(ExpressionKind::kConstant, token.at);
      result->constant = Value::integer(next().integer);
      return result;
    case TokenType::kFloat:
      result = make(ExpressionKind::kConstant, token.at);
      result->constant = Value::real(next().real);
      return result;
    default:
      break;
  }
  if (skip_operator("(")) {
    result = tuple(true, TupleEnd::kTag, true);
    expect_operator(")");
    return result;
  }
  if (is_operator("[")) return list();
  if (is_operator("{")) return dict();
  unexpected();
}

bool ExpressionParser::at_tuple_end(TupleEnd end) const {
  switch (current().type) {
    case TokenType::kVariableEnd:
    case TokenType::kBlockEnd:
      return true;
    default:
      break;
  }
  return is_operator(")") || (end == TupleEnd::kIn && is_name("in")) ||
         (end == TupleEnd::kRecursive && is_name("recursive"));
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, TupleEnd end, bool in_brackets) {
  const Position at = current().at;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!at_tuple_end(end)) {
    items.push_back(expression(with_condition));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !in_brackets)
    fail(fmt::format("Expected an expression, got '{}'", describe(current())));
  ExpressionPtr result = make(ExpressionKind::kTuple, at);
  for (ExpressionPtr& item : items) adopt(*result, std::move(item));
  return result;
}

ExpressionPtr ExpressionParser::target(TupleEnd end, bool namespaces) {
  const Position at = current().at;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!at_tuple_end(end)) {
    const Level level(*this);
    ExpressionPtr item;
    if (skip_operator("(")) {
      item = target(TupleEnd::kTag, namespaces);
      expect_operator(")");
    } else {
      item = primary(namespaces);
    }
    if (item->kind != ExpressionKind::kName && item->kind != ExpressionKind::kTuple &&
        item->kind != ExpressionKind::kNamespaceTarget)
      fail_at(item->at, "can't assign to this");
    if (item->kind == ExpressionKind::kName && end == TupleEnd::kIn &&
        syntax_.names[item->name] == "loop")
      fail_at(item->at, "Can't assign to special loop variable in for-loop");
    items.push_back(std::move(item));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple) fail(fmt::format("Expected an expression, got '{}'", describe(current())));
  ExpressionPtr result = make(ExpressionKind::kTuple, at);
  for (ExpressionPtr& item : items) adopt(*result, std::move(item));
  return result;
}

ExpressionPtr ExpressionParser::list() {
  ExpressionPtr result = make(ExpressionKind::kList, next().at);
  while (!is_operator("]")) {
    adopt(*result, expression());
    if (!is_operator("]")) expect_operator(",");
  }
  next();
  return result;
}

ExpressionPtr ExpressionParser::dict() {
  ExpressionPtr result = make(ExpressionKind::kDict, next().at);
  while (!is_operator("}")) {
    adopt(*result, expression());
    expect_operator(":");
    adopt(*result, expression());
    if (!is_operator("}")) expect_operator(",");
  }
  next();
  return result;
}

}  // namespace lemma::text::jinja
