// SPDX-License-Identifier: Apache-2.0
// Binding the arguments of a call to the parameters of a built-in function, as Python does.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/value.hpp"

namespace lemma::text::jinja {

class Bound {
 public:
  /// `parameters` in their order; the first `required` must be given. Throws otherwise.
  Bound(std::string_view function, Arguments arguments,
        std::initializer_list<std::string_view> parameters, std::size_t required = 0);

  bool has(std::size_t i) const { return values_[i].has_value(); }
  /// None where it was not given.
  const Value& operator[](std::size_t i) const { return values_[i] ? *values_[i] : none_; }
  /// True if it was given and is not None.
  bool is_set(std::size_t i) const { return has(i) && !values_[i]->is(Kind::kNone); }
  bool truth(std::size_t i, bool otherwise = false) const;
  std::int64_t integer(std::size_t i, std::int64_t otherwise = 0) const;
  /// The text of a string. Throws for anything else.
  const Text& text(std::size_t i) const;

 private:
  std::string_view function_;
  std::vector<std::optional<Value>> values_;
  Value none_;
};

}  // namespace lemma::text::jinja
