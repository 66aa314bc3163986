// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template, as the parser makes it and the renderer walks it. Names are
// numbers into a table, so that a scope is looked through without comparing strings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/lexer.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/value.hpp"

namespace lemma::text::jinja {

using NameId = std::uint32_t;

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class ExpressionKind : std::uint8_t {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,       ///< key, value, key, value, ...
  kAttribute,  ///< child 0 . text
  kItem,       ///< child 0 [ child 1 ]
  kSlice,      ///< up to three children; null where left out
  kCall,       ///< child 0 ( call )
  kFilter,     ///< child 0 | text ( call ); child 0 is null in filter blocks
  kTest,       ///< child 0 is text ( call )
  kNot,
  kAnd,
  kOr,
  kNegative,
  kPositive,
  kArithmetic,
  kConcatenate,
  kCompare,          ///< child 0 comparisons[0] child 1 comparisons[1] child 2 ...
  kConditional,      ///< child 1 if child 0 else child 2, which may be null
  kNamespaceTarget,  ///< name . text, assigned to
};

enum class Comparison : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

/// What stands between the brackets of a call, behind the callee.
struct CallSyntax {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  ExpressionPtr star, double_star;
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  Arithmetic arithmetic = Arithmetic::kAdd;
  NameId name = 0;
  std::uint32_t depth = 1;  ///< of the tree below; bounded
  Position at;
  std::string text;
  Value constant;
  std::vector<ExpressionPtr> children;
  std::vector<Comparison> comparisons;
  std::unique_ptr<CallSyntax> call;
};

enum class StatementKind : std::uint8_t {
  kText,
  kPrint,     ///< expressions
  kIf,        ///< expressions[i] chooses branches[i]; one more branch is the else
  kFor,       ///< target in expressions[0] if expressions[1]; branches: body, else
  kSet,       ///< target = expressions[0]
  kSetBlock,  ///< target | expressions[0] (may be null) = branches[0]
  kWith,      ///< targets = expressions, around branches[0]
  kMacro,     ///< name(parameters), branches[0]
  kCall,      ///< a caller(parameters) of branches[0] for the call expressions[0]
  kFilter,    ///< branches[0] through expressions[0]
  kScope,     ///< branches[0] with names of its own (generation, block)
  kBreak,
  kContinue,
  kRefuse,  ///< raises `text`: inheritance, which needs a loader
};

struct MacroSyntax {
  std::string name;
  std::vector<std::pair<NameId, std::string>> parameters;
  std::vector<ExpressionPtr> defaults;  ///< of the last parameters
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  bool recursive = false;  ///< kFor; kScope: sees the names at the top only
  NameId name = 0;
  Position at;
  std::string text;
  ExpressionPtr target;
  std::vector<ExpressionPtr> targets, expressions;
  std::vector<Body> branches;
  std::unique_ptr<MacroSyntax> macro;
};

/// Names that the renderer itself gives values to; the first entries of every table.
enum WellKnownName : NameId { kLoopName, kCallerName, kKwargsName, kVarargsName, kWellKnownNames };

struct Syntax {
  std::vector<std::string> names;
  Body body;
};

/// Throws kTemplate with line and column.
Syntax parse(std::string_view source);

}  // namespace lemma::text::jinja
