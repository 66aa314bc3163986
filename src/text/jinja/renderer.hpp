// SPDX-License-Identifier: Apache-2.0
// Renderer: walks a template's tree once. It owns the scopes, the output and the budget of that one
// rendering; values that could refer to each other in circles (namespaces, and scopes that macros
// close over) are registered with it and emptied at its end. Split over three files: statements
// (renderer.cpp), loops and macros (calls.cpp), expressions (evaluate.cpp).
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/budget.hpp"
#include "text/jinja/syntax.hpp"
#include "text/jinja/template.hpp"
#include "text/jinja/value.hpp"

namespace lemma::text::jinja {

/// Names that are set in one stretch of the template; what is not found here is looked for outside.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  const Value* find(NameId name) const;
  void set(NameId name, Value value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<NameId, Value>> values;
  bool kept = false;  ///< registered with the renderer
};
using ScopePtr = std::shared_ptr<Scope>;

class Renderer {
 public:
  Renderer(const Syntax& syntax, const Value& variables, const RenderOptions& options);
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  Text run();

  Budget& budget() noexcept { return budget_; }
  const RenderOptions& options() const noexcept { return options_; }

  /// object.name and object[key], with the fallbacks of Jinja's sandbox. What is not there is an
  /// undefined value.
  Value get_attribute(const Value& object, std::string_view name);
  Value get_item(const Value& object, const Value& key);
  Value call(const Value& callee, Arguments arguments);
  Value filter(std::string_view name, const Value& value, Arguments arguments);
  bool test(std::string_view name, const Value& value, Arguments arguments);
  /// Keeps a namespace until the rendering ends, and empties it then.
  void keep(std::shared_ptr<Namespace> name_space);

 private:
  friend struct Macro;
  friend struct Loop;
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };
  class Depth;    // counts nested evaluations
  class Capture;  // redirects the output

  Flow run_body(const Body& body, const ScopePtr& scope);
  Flow run(const Statement& statement, const ScopePtr& scope);
  Flow run_if(const Statement& statement, const ScopePtr& scope);
  Flow run_for(const Statement& statement, const Value& iterable, const ScopePtr& scope,
               std::uint32_t depth);
  void run_set_block(const Statement& statement, const ScopePtr& scope);
  void run_with(const Statement& statement, const ScopePtr& scope);
  void run_call(const Statement& statement, const ScopePtr& scope);
  void assign(const Expression& target, Value value, const ScopePtr& scope);
  void unpack(const Expression& target, const Value& value, const ScopePtr& scope);
  void print(const Value& value);
  Text capture(const Body& body, const ScopePtr& scope);

  Value make_macro(const Statement& statement, const ScopePtr& scope);
  Text call_macro(const Statement& statement, const ScopePtr& scope, Arguments arguments);
  void bind_parameters(const MacroSyntax& macro, const ScopePtr& inside, Arguments& arguments);
  Text call_loop(const Statement& statement, const Value& iterable, const ScopePtr& scope,
                 std::uint32_t depth);
  void keep(const ScopePtr& scope);

  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Value evaluate_inner(const Expression& expression, const ScopePtr& scope);
  Value evaluate_name(const Expression& expression, const ScopePtr& scope);
  Value evaluate_dict(const Expression& expression, const ScopePtr& scope);
  Value evaluate_slice(const Expression& expression, const ScopePtr& scope);
  Value evaluate_compare(const Expression& expression, const ScopePtr& scope);
  Value evaluate_concatenation(const Expression& expression, const ScopePtr& scope);
  Value evaluate_conditional(const Expression& expression, const ScopePtr& scope);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions,
                                  const ScopePtr& scope);
  Arguments evaluate_call(const CallSyntax& call, const ScopePtr& scope);
  Value evaluate_filter(const Expression& expression, const ScopePtr& scope, const Value* input);

  const Syntax& syntax_;
  RenderOptions options_;
  Budget budget_;
  std::vector<Value> globals_;  // by name; undefined where there is none
  std::vector<bool> has_global_;
  ScopePtr top_;
  TextBuilder* out_ = nullptr;
  const Expression* expression_ = nullptr;  // being evaluated, for messages
  const Statement* statement_ = nullptr;
  std::uint32_t depth_ = 0, calls_ = 0;
  std::vector<ScopePtr> kept_scopes_;
  std::vector<std::shared_ptr<Namespace>> kept_namespaces_;
};

/// The value of a name that every template knows, or nothing: range, namespace, ...
std::optional<Value> find_global(std::string_view name);

}  // namespace lemma::text::jinja
