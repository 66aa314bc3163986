// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/expression.hpp"

namespace lemma::text::constraint {

Expression literal(std::string bytes) {
  Expression made;
  made.kind = Expression::Kind::kBytes;
  made.bytes = std::move(bytes);
  return made;
}

Expression one_of(regex::CharSet chars) {
  Expression made;
  made.kind = Expression::Kind::kChars;
  made.chars = std::move(chars);
  return made;
}

Expression sequence(std::vector<Expression> parts) {
  Expression made;
  made.kind = Expression::Kind::kSequence;
  made.children = std::move(parts);
  return made;
}

Expression choice(std::vector<Expression> parts) {
  Expression made;
  made.kind = Expression::Kind::kChoice;
  made.children = std::move(parts);
  return made;
}

Expression repeat(Expression part, std::uint32_t least, std::uint32_t most) {
  Expression made;
  made.kind = Expression::Kind::kRepeat;
  made.least = least;
  made.most = most;
  made.children.push_back(std::move(part));
  return made;
}

Expression optional(Expression part) {
  return repeat(std::move(part), 0, 1);
}

Expression rule_of(std::uint32_t rule) {
  Expression made;
  made.kind = Expression::Kind::kRule;
  made.rule = rule;
  return made;
}

}  // namespace lemma::text::constraint
