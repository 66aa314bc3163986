// SPDX-License-Identifier: Apache-2.0
// Loops and macros: the statements that stand behind a value which can be called.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "text/jinja/evaluation.hpp"
#include "text/jinja/renderer.hpp"

namespace lemma::text::jinja {

/// A macro, or the body of a call block, with the scope that it was defined in.
struct Macro : Function {
  Macro(const Statement& own_statement, ScopePtr own_scope)
      : statement(own_statement), scope(std::move(own_scope)) {
    type = "Macro";
  }
  Value call(Renderer& renderer, Arguments arguments) override {
    return Value::string(renderer.call_macro(statement, scope, std::move(arguments)));
  }
  std::string repr() const override {
    const std::string& name = statement.macro->name;
    return name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", name);
  }
  std::optional<Value> attribute(Renderer&, std::string_view name) override {
    const MacroSyntax& macro = *statement.macro;
    if (name == "name") return Value::string(macro.name);
    if (name == "catch_kwargs") return Value::boolean(macro.uses_kwargs);
    if (name == "catch_varargs") return Value::boolean(macro.uses_varargs);
    if (name == "caller") return Value::boolean(macro.uses_caller);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const auto& [id, parameter] : macro.parameters) names.push_back(Value::string(parameter));
    return Value::tuple(std::move(names));
  }

  const Statement& statement;
  ScopePtr scope;
};

/// `loop`. It reads one element ahead only where it is asked for what lies ahead.
struct Loop : Function {
  Loop() { type = "LoopContext"; }

  bool advance(Value& element) {
    if (ahead) {
      element = *std::move(ahead);
      ahead.reset();
    } else if (!next(element)) {
      return false;
    }
    ++index0;
    before = std::exchange(current, element);
    deepen(element);
    return true;
  }

  bool peek() {
    Value element;
    if (!ahead && next(element)) {
      deepen(element);
      ahead = std::move(element);
    }
    return ahead.has_value();
  }

  std::int64_t count(Renderer& renderer) {
    if (!length) {
      std::vector<Value> rest;
      Value element;
      while (next(element)) {
        deepen(element);
        rest.push_back(std::move(element));
      }
      renderer.budget().allocate(rest.size() * sizeof(Value));
      length = static_cast<std::int64_t>(rest.size()) + index0 + 1 + (ahead ? 1 : 0);
      next = [rest = std::move(rest), at = std::size_t{0}](Value& out) mutable {
        if (at >= rest.size()) return false;
        out = rest[at++];
        return true;
      };
    }
    return *length;
  }

  Value call(Renderer& renderer, Arguments arguments) override {
    if (!statement->recursive)
      base::raise(ErrorKind::kTemplate,
                  "The loop must have the 'recursive' marker to be called recursively.");
    if (arguments.positional.size() != 1 || !arguments.keywords.empty())
      base::raise(ErrorKind::kTemplate, "loop() takes exactly one argument");
    return Value::string(renderer.call_loop(*statement, arguments.positional[0], scope, level + 1));
  }

  std::string repr() const override {
    if (!length) base::raise(ErrorKind::kTemplate, "a loop of unknown length cannot be printed");
    return fmt::format("<LoopContext {}/{}>", index0 + 1, *length);
  }
  std::optional<Value> attribute(Renderer& renderer, std::string_view name) override;

  const Statement* statement = nullptr;
  ScopePtr scope;
  std::uint32_t level = 0;
  std::function<bool(Value&)> next;
  std::optional<std::int64_t> length;
  std::int64_t index0 = -1;
  bool finished = false;
  Value current, before;
  std::optional<Value> ahead;
  std::optional<Value> last_changed;

 private:
  void deepen(const Value& element) { depth = std::max(depth, depth_over(element.depth())); }
};

namespace {

/// loop.cycle and loop.changed.
struct LoopMethod : Function {
  LoopMethod(Loop& own_loop, std::shared_ptr<Object> own_owner, bool is_cycle)
      : Function(), loop(own_loop), owner(std::move(own_owner)), cycle(is_cycle) {
    type = "method";
  }
  Value call(Renderer& renderer, Arguments arguments) override {
    if (loop.finished)
      base::raise(ErrorKind::kTemplate, "'loop' is used after the end of its loop");
    std::vector<Value>& values = arguments.positional;
    if (cycle) {
      if (values.empty()) base::raise(ErrorKind::kTemplate, "no items for cycling given");
      return values[static_cast<std::size_t>(loop.index0) % values.size()];
    }
    Value now = Value::tuple(std::move(values));
    if (loop.last_changed && equal(renderer.budget(), *loop.last_changed, now))
      return Value::boolean(false);
    loop.last_changed = std::move(now);
    loop.depth = std::max(loop.depth, depth_over(loop.last_changed->depth()));
    return Value::boolean(true);
  }
  std::string repr() const override {
    base::raise(ErrorKind::kTemplate, "a method of 'loop' is printed, not called");
  }

  Loop& loop;
  std::shared_ptr<Object> owner;
  bool cycle;
};

/// Lets go of a loop's elements at its end, however it ends: one of them may hold the loop.
struct Finish {
  ~Finish() {
    loop.finished = true;
    loop.next = nullptr;
    loop.current = loop.before = Value();
    loop.ahead.reset();
    loop.last_changed.reset();
  }
  Loop& loop;
};

/// Shares the ownership of a loop that is alive on the renderer's stack.
struct LoopObject : std::enable_shared_from_this<LoopObject>, Loop {};

}  // namespace

std::optional<Value> Loop::attribute(Renderer& renderer, std::string_view name) {
  if (finished) base::raise(ErrorKind::kTemplate, "'loop' is used after the end of its loop");
  const auto integer = [](std::int64_t value) { return Value::integer(value); };
  if (name == "index") return integer(index0 + 1);
  if (name == "index0") return integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return integer(count(renderer));
  if (name == "revindex") return integer(count(renderer) - index0);
  if (name == "revindex0") return integer(count(renderer) - index0 - 1);
  if (name == "depth") return integer(level + 1);
  if (name == "depth0") return integer(level);
  if (name == "previtem")
    return index0 == 0 ? Value::undefined("there is no previous item") : before;
  if (name == "nextitem") return peek() ? *ahead : Value::undefined("there is no next item");
  if (name == "cycle" || name == "changed") {
    auto owner = static_cast<LoopObject*>(this)->shared_from_this();
    return Value::object(Kind::kFunction,
                         std::make_shared<LoopMethod>(*this, std::move(owner), name == "cycle"));
  }
  return std::nullopt;
}

Renderer::Flow Renderer::run_for(const Statement& statement, const Value& iterable,
                                 const ScopePtr& scope, std::uint32_t level) {
  const auto loop = std::make_shared<LoopObject>();
  loop->statement = &statement;
  loop->scope = scope;
  loop->level = level;
  loop->next = iterate(budget_, iterable);
  const Expression* condition = statement.expressions[1].get();
  if (condition) {
    loop->next = [this, &statement, condition, scope, all = std::move(loop->next)](Value& out) {
      while (all(out)) {
        const ScopePtr inside = std::make_shared<Scope>(scope);
        assign(*statement.target, out, inside);
        if (truthy(evaluate(*condition, inside))) return true;
      }
      return false;
    };
  } else {
    loop->length = find_length(iterable);
  }
  const Value loop_value = Value::object(Kind::kLoop, std::static_pointer_cast<Loop>(loop));
  const Finish finish{*loop};
  ScopePtr inside;
  Value element;
  Flow flow = Flow::kNext;
  while (flow != Flow::kBreak && loop->advance(element)) {
    budget_.charge(1);
    // The scope of the last turn serves again unless a macro or a loop object has kept it.
    if (inside && inside.use_count() == 1)
      inside->values.clear();
    else
      inside = std::make_shared<Scope>(scope);
    inside->set(kLoopName, loop_value);
    assign(*statement.target, std::move(element), inside);
    flow = run_body(statement.branches[0], inside);
  }
  const bool none = loop->index0 < 0;
  inside.reset();
  // One that outlives its loop may be held, by way of others, by the scope that it holds.
  if (loop.use_count() > 2) keep(scope);
  if (none && statement.branches.size() > 1)
    return run_body(statement.branches[1], std::make_shared<Scope>(scope));
  return Flow::kNext;
}

Text Renderer::call_loop(const Statement& statement, const Value& iterable, const ScopePtr& scope,
                         std::uint32_t level) {
  if (calls_ >= budget_.limits().calls)
    base::raise(ErrorKind::kTemplate, "calls nest more than {} deep", budget_.limits().calls);
  ++calls_;
  TextBuilder inner;
  const Capture redirected(*this, inner);
  run_for(statement, iterable, scope, level);
  --calls_;
  budget_.allocate(inner.size());
  return inner.take();
}

Value Renderer::make_macro(const Statement& statement, const ScopePtr& scope) {
  keep(scope);
  return Value::object(Kind::kFunction, std::static_pointer_cast<Function>(
                                            std::make_shared<Macro>(statement, scope)));
}

void Renderer::bind_parameters(const MacroSyntax& macro, const ScopePtr& inside,
                               Arguments& arguments) {
  const std::size_t count = macro.parameters.size();
  const std::size_t required = count - macro.defaults.size();
  std::vector<std::optional<Value>> given(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i < arguments.positional.size()) {
      given[i] = arguments.positional[i];
      continue;
    }
    const auto keyword =
        std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                     [&](const auto& entry) { return entry.first == macro.parameters[i].second; });
    if (keyword == arguments.keywords.end()) continue;
    given[i] = std::move(keyword->second);
    arguments.keywords.erase(keyword);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [id, name] = macro.parameters[i];
    if (given[i])
      inside->set(id, *std::move(given[i]));
    else if (i >= required)
      inside->set(id, evaluate(*macro.defaults[i - required], inside));
    else
      inside->set(id, Value::undefined(fmt::format("parameter '{}' was not provided", name)));
  }
}

Text Renderer::call_macro(const Statement& statement, const ScopePtr& scope, Arguments arguments) {
  const MacroSyntax& macro = *statement.macro;
  if (calls_ >= budget_.limits().calls)
    base::raise(ErrorKind::kTemplate, "calls nest more than {} deep", budget_.limits().calls);
  ++calls_;
  const ScopePtr inside = std::make_shared<Scope>(scope);
  bind_parameters(macro, inside, arguments);
  const bool own_caller = inside->find(kCallerName) != nullptr;
  if (macro.uses_caller && !own_caller) {
    const auto caller = std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                                     [](const auto& entry) { return entry.first == "caller"; });
    if (caller == arguments.keywords.end()) {
      inside->set(kCallerName, Value::undefined("No caller defined"));
    } else {
      inside->set(kCallerName, std::move(caller->second));
      arguments.keywords.erase(caller);
    }
  }
  if (macro.uses_kwargs) {
    auto dict = std::make_shared<Dict>();
    for (auto& [key, value] : arguments.keywords) dict->set(Value::string(key), std::move(value));
    inside->set(kKwargsName, Value::dict(std::move(dict)));
  } else if (!arguments.keywords.empty()) {
    base::raise(ErrorKind::kTemplate, "macro '{}' takes no keyword argument '{}'", macro.name,
                arguments.keywords[0].first);
  }
  const std::size_t count = std::min(macro.parameters.size(), arguments.positional.size());
  if (macro.uses_varargs) {
    inside->set(kVarargsName,
                Value::tuple({arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                              arguments.positional.end()}));
  } else if (arguments.positional.size() > count) {
    base::raise(ErrorKind::kTemplate, "macro '{}' takes not more than {} argument(s)", macro.name,
                macro.parameters.size());
  }
  Text result = capture(statement.branches[0], inside);
  --calls_;
  return result;
}

void Renderer::run_call(const Statement& statement, const ScopePtr& scope) {
  const Expression& call_expression = *statement.expressions[0];
  const Value callee = evaluate(*call_expression.children[0], scope);
  Arguments arguments = evaluate_call(*call_expression.call, scope);
  arguments.keywords.emplace_back("caller", make_macro(statement, scope));
  const Expression* outer = std::exchange(expression_, &call_expression);
  print(call(callee, std::move(arguments)));
  expression_ = outer;
}

}  // namespace lemma::text::jinja
