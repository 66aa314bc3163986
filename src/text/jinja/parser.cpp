// SPDX-License-Identifier: Apache-2.0
// Statements: the tags of Jinja with loop controls (break, continue) and the generation block of
// chat templates. Inheritance and imports parse and raise when they are reached, as they do where
// no loader is set; automatic escaping and translation are refused.
#include "text/jinja/parser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace lemma::text::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;

class StatementParser : private ExpressionParser {
 public:
  explicit StatementParser(std::string_view source) : ExpressionParser(source) {}

  Syntax run() {
    syntax_.body = body({});
    return std::move(syntax_);
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  static StatementPtr make(StatementKind kind, Position at) {
    auto result = std::make_unique<Statement>();
    result->kind = kind;
    result->at = at;
    return result;
  }

  static bool ends(const Token& token, Ends names) {
    return token.type == TokenType::kName &&
           std::find(names.begin(), names.end(), token.text) != names.end();
  }

  /// Statements up to a tag of one of `names`, which is left to be read; up to the end for none.
  Body body(Ends names) {
    const Level level(*this);
    Body result;
    for (;;) {
      const Token& token = current();
      switch (token.type) {
        case TokenType::kData: {
          StatementPtr text = make(StatementKind::kText, token.at);
          text->text = next().text;
          result.push_back(std::move(text));
          break;
        }
        case TokenType::kVariableBegin: {
          StatementPtr print = make(StatementKind::kPrint, next().at);
          print->expressions.push_back(tuple());
          expect(TokenType::kVariableEnd, "end of print statement");
          result.push_back(std::move(print));
          break;
        }
        case TokenType::kBlockBegin:
          next();
          if (ends(current(), names)) return result;
          if (StatementPtr one = statement()) result.push_back(std::move(one));
          expect(TokenType::kBlockEnd, "end of statement block");
          break;
        default:
          if (names.size() != 0) missing_end(names);
          if (token.type != TokenType::kEnd) unexpected();
          return result;
      }
    }
  }

  [[noreturn]] void missing_end(Ends names) const {
    std::string list;
    for (const std::string_view name : names)
      list += fmt::format("{}'{}'", list.empty() ? "" : " or ", name);
    fail(fmt::format("Unexpected end of template. Jinja was looking for the following tags: {}.",
                     list));
  }

  void expect(TokenType type, std::string_view name) {
    if (current().type != type)
      fail(fmt::format("expected token '{}', got '{}'", name, describe(current())));
    next();
  }

  /// The end of the opening tag and what follows, up to one of `names`.
  Body block(Ends names) {
    skip_operator(":");
    expect(TokenType::kBlockEnd, "end of statement block");
    return body(names);
  }

  /// A body with names of its own, where unknown filters are errors at once.
  Body scope(Ends names) {
    const bool outer = soft_;
    soft_ = false;
    Body result = block(names);
    soft_ = outer;
    return result;
  }

  StatementPtr statement() {
    if (current().type != TokenType::kName) fail("tag name expected");
    const std::string tag = current().text;
    const Position at = next().at;
    if (tag == "if") return if_statement(at);
    if (tag == "for") return for_statement(at);
    if (tag == "set") return set_statement(at);
    if (tag == "macro") return macro_statement(at);
    if (tag == "call") return call_statement(at);
    if (tag == "filter") return filter_statement(at);
    if (tag == "with") return with_statement(at);
    if (tag == "print") return print_statement(at);
    if (tag == "generation") return scope_statement(at, "endgeneration");
    if (tag == "block") return block_statement(at);
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail_at(at, fmt::format("'{}' outside loop", tag));
      return make(tag == "break" ? StatementKind::kBreak : StatementKind::kContinue, at);
    }
    if (tag == "include" || tag == "import" || tag == "extends" || tag == "from") {
      StatementPtr result = make(StatementKind::kRefuse, at);
      result->text = "no loader for this environment specified";
      while (current().type != TokenType::kBlockEnd && current().type != TokenType::kEnd) next();
      return result;
    }
    if (tag == "autoescape") fail_at(at, "the tag 'autoescape' is not supported");
    fail_at(at, fmt::format("Encountered unknown tag '{}'.", tag));
  }

  StatementPtr if_statement(Position at) {
    const bool outer = soft_;
    soft_ = true;
    StatementPtr result = make(StatementKind::kIf, at);
    do {
      result->expressions.push_back(tuple(false));
      result->branches.push_back(block({"elif", "else", "endif"}));
    } while (skip_name("elif"));
    if (skip_name("else")) result->branches.push_back(block({"endif"}));
    expect_name("endif");
    soft_ = outer;
    return result;
  }

  StatementPtr for_statement(Position at) {
    StatementPtr result = make(StatementKind::kFor, at);
    result->target = target(TupleEnd::kIn, false);
    expect_name("in");
    result->expressions.push_back(tuple(false, TupleEnd::kRecursive));
    result->expressions.push_back(skip_name("if") ? expression() : nullptr);
    result->recursive = skip_name("recursive");
    ++loops_;
    result->branches.push_back(scope({"endfor", "else"}));
    --loops_;
    if (skip_name("else")) result->branches.push_back(scope({"endfor"}));
    expect_name("endfor");
    return result;
  }

  StatementPtr set_statement(Position at) {
    StatementPtr result = make(StatementKind::kSet, at);
    result->target = target(TupleEnd::kTag, true);
    if (skip_operator("=")) {
      result->expressions.push_back(tuple());
      return result;
    }
    result->kind = StatementKind::kSetBlock;
    result->expressions.push_back(is_operator("|") ? filters(nullptr, false) : nullptr);
    result->branches.push_back(scope({"endset"}));
    next();
    return result;
  }

  /// (a, b=1): names, and defaults of the last ones.
  void signature(MacroSyntax& macro) {
    expect_operator("(");
    while (!is_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      std::string name = expect_any_name();
      if (skip_operator("="))
        macro.defaults.push_back(expression());
      else if (!macro.defaults.empty())
        fail("non-default argument follows default argument");
      const NameId id = intern(name);
      macro.parameters.emplace_back(id, std::move(name));
    }
    next();
  }

  /// The body of a macro or of a caller, which loops outside cannot reach into.
  Body macro_body(MacroSyntax& macro, Ends names) {
    macros_.push_back(&macro);
    const std::uint32_t outer = loops_;
    loops_ = 0;
    Body result = scope(names);
    loops_ = outer;
    macros_.pop_back();
    return result;
  }

  StatementPtr macro_statement(Position at) {
    StatementPtr result = make(StatementKind::kMacro, at);
    result->macro = std::make_unique<MacroSyntax>();
    result->macro->name = expect_any_name();
    result->name = intern(result->macro->name);
    signature(*result->macro);
    result->branches.push_back(macro_body(*result->macro, {"endmacro"}));
    next();
    return result;
  }

  StatementPtr call_statement(Position at) {
    StatementPtr result = make(StatementKind::kCall, at);
    result->macro = std::make_unique<MacroSyntax>();
    if (is_operator("(")) signature(*result->macro);
    result->expressions.push_back(expression());
    if (result->expressions[0]->kind != ExpressionKind::kCall) fail_at(at, "expected call");
    result->branches.push_back(macro_body(*result->macro, {"endcall"}));
    next();
    return result;
  }

  StatementPtr filter_statement(Position at) {
    StatementPtr result = make(StatementKind::kFilter, at);
    result->expressions.push_back(filters(nullptr, true));
    result->branches.push_back(scope({"endfilter"}));
    next();
    return result;
  }

  StatementPtr with_statement(Position at) {
    StatementPtr result = make(StatementKind::kWith, at);
    while (current().type != TokenType::kBlockEnd && !is_operator(":")) {
      if (!result->targets.empty()) expect_operator(",");
      // A comma would make the target a tuple; only one in brackets is.
      if (current().type == TokenType::kName && is_operator(look(), "=")) {
        result->targets.push_back(single_target());
      } else {
        result->targets.push_back(target(TupleEnd::kTag, false));
      }
      expect_operator("=");
      result->expressions.push_back(expression());
    }
    result->branches.push_back(scope({"endwith"}));
    next();
    return result;
  }

  ExpressionPtr single_target() {
    auto result = std::make_unique<Expression>();
    result->kind = ExpressionKind::kName;
    result->at = current().at;
    result->name = intern(next().text);
    return result;
  }

  StatementPtr print_statement(Position at) {
    StatementPtr result = make(StatementKind::kPrint, at);
    while (current().type != TokenType::kBlockEnd) {
      if (!result->expressions.empty()) expect_operator(",");
      result->expressions.push_back(expression());
    }
    return result;
  }

  StatementPtr scope_statement(Position at, std::string_view end) {
    StatementPtr result = make(StatementKind::kScope, at);
    const std::uint32_t outer = loops_;
    loops_ = 0;
    result->branches.push_back(scope({end}));
    loops_ = outer;
    next();
    return result;
  }

  StatementPtr block_statement(Position at) {
    const std::string name = expect_any_name();
    const bool scoped = skip_name("scoped");
    if (is_name("required")) fail("required blocks are not supported");
    StatementPtr result = scope_statement(at, "endblock");
    skip_name(name);
    result->recursive = !scoped;
    return result;
  }

  std::uint32_t loops_ = 0;
};

}  // namespace

Syntax parse(std::string_view source) {
  return StatementParser(source).run();
}

}  // namespace lemma::text::jinja
