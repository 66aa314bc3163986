// SPDX-License-Identifier: Apache-2.0
// Overloaded: lambdas joined into one visitor, for std::visit over a closed list of alternatives:
//
//   std::visit(base::Overloaded{[](const Embed&) { ... }, [](const auto&) { ... }}, operation);
#pragma once

namespace lemma::base {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>  // clang 16 does not deduce aggregates by itself
Overloaded(Visitors...)->Overloaded<Visitors...>;

}  // namespace lemma::base
