// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/renderer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "text/jinja/evaluation.hpp"

namespace lemma::text::jinja {

const Value* Scope::find(NameId name) const {
  for (const auto& [own, value] : values)
    if (own == name) return &value;
  return nullptr;
}

void Scope::set(NameId name, Value value) {
  for (auto& [own, old] : values)
    if (own == name) {
      old = std::move(value);
      return;
    }
  values.emplace_back(name, std::move(value));
}

Renderer::Renderer(const Syntax& syntax, const Value& variables, const RenderOptions& options)
    : syntax_(syntax),
      options_(options),
      budget_(options.limits),
      globals_(syntax.names.size()),
      has_global_(syntax.names.size()),
      top_(std::make_shared<Scope>(nullptr)) {
  if (!variables.is(Kind::kDict))
    base::raise(ErrorKind::kTemplate, "the variables of a template are an object, not a {}",
                type_name(variables));
  for (std::size_t i = 0; i < syntax.names.size(); ++i) {
    std::optional<Value> value;
    if (const Value* found = variables.dict().find(syntax.names[i]))
      value = *found;
    else
      value = find_global(syntax.names[i]);
    if (!value) continue;
    globals_[i] = *std::move(value);
    has_global_[i] = true;
  }
}

Renderer::~Renderer() {
  // Everything is held by these lists, so emptying one thing after the other frees no long chains.
  for (const auto& name_space : kept_namespaces_) name_space->attributes.clear();
  for (const ScopePtr& scope : kept_scopes_) scope->values.clear();
}

void Renderer::keep(std::shared_ptr<Namespace> name_space) {
  kept_namespaces_.push_back(std::move(name_space));
}

void Renderer::keep(const ScopePtr& scope) {
  // Those outside are held by this one, but may hold what refers to it.
  for (ScopePtr each = scope; each && !each->kept; each = each->parent) {
    each->kept = true;
    kept_scopes_.push_back(each);
  }
}

Text Renderer::run() {
  TextBuilder out;
  out_ = &out;
  try {
    run_body(syntax_.body, top_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kTemplate) throw;
    const Position at = expression_ ? expression_->at : statement_ ? statement_->at : Position{};
    fail_at(at, error.what());
  }
  return out.take();
}

Text Renderer::capture(const Body& body, const ScopePtr& scope) {
  TextBuilder inner;
  const Capture redirected(*this, inner);
  run_body(body, scope);
  budget_.allocate(inner.size());
  return inner.take();
}

Renderer::Flow Renderer::run_body(const Body& body, const ScopePtr& scope) {
  for (const auto& statement : body) {
    const Flow flow = run(*statement, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

void Renderer::print(const Value& value) {
  append_text(budget_, *out_, value);
  if (out_->size() > budget_.limits().output) budget_.allocate(out_->size());
}

Renderer::Flow Renderer::run(const Statement& statement, const ScopePtr& scope) {
  const Depth depth(*this);
  budget_.charge(1);
  const Statement* outer = std::exchange(statement_, &statement);
  Flow flow = Flow::kNext;
  switch (statement.kind) {
    case StatementKind::kText:
      budget_.charge(statement.text.size() / 64);
      out_->append(statement.text);
      if (out_->size() > budget_.limits().output) budget_.allocate(out_->size());
      break;
    case StatementKind::kPrint:
      for (const ExpressionPtr& expression : statement.expressions)
        print(evaluate(*expression, scope));
      break;
    case StatementKind::kIf:
      flow = run_if(statement, scope);
      break;
    case StatementKind::kFor:
      flow = run_for(statement, evaluate(*statement.expressions[0], scope), scope, 0);
      break;
    case StatementKind::kSet:
      assign(*statement.target, evaluate(*statement.expressions[0], scope), scope);
      break;
    case StatementKind::kSetBlock:
      run_set_block(statement, scope);
      break;
    case StatementKind::kWith:
      run_with(statement, scope);
      break;
    case StatementKind::kMacro:
      scope->set(statement.name, make_macro(statement, scope));
      break;
    case StatementKind::kCall:
      run_call(statement, scope);
      break;
    case StatementKind::kFilter: {
      const Value text =
          Value::string(capture(statement.branches[0], std::make_shared<Scope>(scope)));
      print(evaluate_filter(*statement.expressions[0], scope, &text));
      break;
    }
    case StatementKind::kScope:
      run_body(statement.branches[0], std::make_shared<Scope>(statement.recursive ? top_ : scope));
      break;
    case StatementKind::kBreak:
      flow = Flow::kBreak;
      break;
    case StatementKind::kContinue:
      flow = Flow::kContinue;
      break;
    case StatementKind::kRefuse:
      base::raise(ErrorKind::kTemplate, "{}", statement.text);
  }
  statement_ = outer;
  return flow;
}

Renderer::Flow Renderer::run_if(const Statement& statement, const ScopePtr& scope) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i)
    if (truthy(evaluate(*statement.expressions[i], scope)))
      return run_body(statement.branches[i], scope);
  if (statement.branches.size() > statement.expressions.size())
    return run_body(statement.branches.back(), scope);
  return Flow::kNext;
}

void Renderer::run_set_block(const Statement& statement, const ScopePtr& scope) {
  Value value = Value::string(capture(statement.branches[0], std::make_shared<Scope>(scope)));
  if (statement.expressions[0]) value = evaluate_filter(*statement.expressions[0], scope, &value);
  assign(*statement.target, std::move(value), scope);
}

void Renderer::run_with(const Statement& statement, const ScopePtr& scope) {
  const ScopePtr inside = std::make_shared<Scope>(scope);
  for (std::size_t i = 0; i < statement.targets.size(); ++i)
    assign(*statement.targets[i], evaluate(*statement.expressions[i], scope), inside);
  run_body(statement.branches[0], inside);
}

void Renderer::assign(const Expression& target, Value value, const ScopePtr& scope) {
  switch (target.kind) {
    case ExpressionKind::kName:
      scope->set(target.name, std::move(value));
      return;
    case ExpressionKind::kTuple:
      unpack(target, value, scope);
      return;
    default:
      break;
  }
  Expression name;
  name.kind = ExpressionKind::kName;
  name.name = target.name;
  name.at = target.at;
  const Value holder = evaluate(name, scope);
  if (!holder.is(Kind::kNamespace))
    base::raise(ErrorKind::kTemplate, "cannot assign attribute on non-namespace object");
  set_namespace_attribute(holder.name_space(), target.text, std::move(value));
}

void Renderer::unpack(const Expression& target, const Value& value, const ScopePtr& scope) {
  if (!is_iterable(value))
    base::raise(ErrorKind::kTemplate, "cannot unpack non-iterable {} object", type_name(value));
  const std::vector<Value> items = to_items(budget_, value);
  const std::size_t expected = target.children.size();
  if (items.size() > expected)
    base::raise(ErrorKind::kTemplate, "too many values to unpack (expected {})", expected);
  if (items.size() < expected)
    base::raise(ErrorKind::kTemplate, "not enough values to unpack (expected {}, got {})", expected,
                items.size());
  for (std::size_t i = 0; i < expected; ++i) assign(*target.children[i], items[i], scope);
}

}  // namespace lemma::text::jinja
