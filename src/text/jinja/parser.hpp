// SPDX-License-Identifier: Apache-2.0
// The parser's two halves share a cursor over the tokens: ExpressionParser reads expressions with
// Jinja's precedence, StatementParser (parser.cpp) reads tags and builds on it. Nesting is bounded
// in both, so that neither parsing nor walking nor freeing a tree can exhaust the stack.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/syntax.hpp"

namespace lemma::text::jinja {

class ExpressionParser {
 protected:
  /// Where a tuple without brackets ends, beyond the end of its tag.
  enum class TupleEnd : std::uint8_t { kTag, kIn, kRecursive };

  explicit ExpressionParser(std::string_view source);

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next();
  bool is_name(std::string_view name) const { return is_name(current(), name); }
  bool is_operator(std::string_view op) const { return is_operator(current(), op); }
  static bool is_name(const Token& token, std::string_view name) {
    return token.type == TokenType::kName && token.text == name;
  }
  static bool is_operator(const Token& token, std::string_view op) {
    return token.type == TokenType::kOperator && token.text == op;
  }
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  /// The text of a name, which must stand here.
  std::string expect_any_name();
  [[noreturn]] void fail(std::string_view message) const { fail_at(current().at, message); }
  [[noreturn]] void unexpected() const;
  static std::string describe(const Token& token);

  NameId intern(std::string_view name);

  ExpressionPtr expression(bool with_condition = true);
  ExpressionPtr tuple(bool with_condition = true, TupleEnd end = TupleEnd::kTag,
                      bool in_brackets = false);
  /// What may stand left of `=` or of `in`. With `namespaces` also name.attribute.
  ExpressionPtr target(TupleEnd end, bool namespaces);
  /// A filter, with its `|`s; without one in front where `inline_start`.
  ExpressionPtr filters(ExpressionPtr operand, bool inline_start);

  /// One level of nesting; throws where there are too many.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  Syntax syntax_;
  /// Macros around the current place, innermost last: which special names they use.
  std::vector<MacroSyntax*> macros_;
  /// Inside an `if`, an unknown filter or test is an error only if it is reached.
  bool soft_ = false;

 private:
  friend class Level;
  ExpressionPtr make(ExpressionKind kind, Position at);
  /// Accounts for a child's depth; throws where the tree is too deep.
  static void deepen(Expression& parent, const Expression& child);
  /// Adds `child`, which may be null.
  void adopt(Expression& parent, ExpressionPtr child);
  void adopt_call(Expression& parent);
  ExpressionPtr binary(ExpressionKind kind, Position at, ExpressionPtr left, ExpressionPtr right);

  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter);
  ExpressionPtr primary(bool namespaces);
  ExpressionPtr name(bool namespaces);
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr operand);
  ExpressionPtr filter_tail(ExpressionPtr operand);
  ExpressionPtr subscript(ExpressionPtr operand);
  ExpressionPtr subscribed();
  ExpressionPtr test(ExpressionPtr operand);
  std::unique_ptr<CallSyntax> call_syntax();
  ExpressionPtr call(ExpressionPtr callee);
  bool at_tuple_end(TupleEnd end) const;
  void use_special(std::string_view name);
  void check_known(const char* what, bool known, const Token& token, std::string_view name) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::uint32_t level_ = 0;
  std::unordered_map<std::string, NameId> ids_;
};

}  // namespace lemma::text::jinja
