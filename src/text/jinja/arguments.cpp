// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/arguments.hpp"

#include <algorithm>

#include "text/jinja/operators.hpp"

namespace lemma::text::jinja {

Bound::Bound(std::string_view function, Arguments arguments,
             std::initializer_list<std::string_view> parameters, std::size_t required)
    : function_(function), values_(parameters.size()) {
  if (arguments.positional.size() > parameters.size())
    base::raise(ErrorKind::kTemplate, "{}() takes at most {} arguments, got {}", function,
                parameters.size(), arguments.positional.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = std::move(arguments.positional[i]);
  for (auto& [key, value] : arguments.keywords) {
    const auto found = std::find(parameters.begin(), parameters.end(), key);
    if (found == parameters.end())
      base::raise(ErrorKind::kTemplate, "{}() got an unexpected keyword argument '{}'", function,
                  key);
    std::optional<Value>& place = values_[static_cast<std::size_t>(found - parameters.begin())];
    if (place)
      base::raise(ErrorKind::kTemplate, "{}() got multiple values for argument '{}'", function,
                  key);
    place = std::move(value);
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i])
      base::raise(ErrorKind::kTemplate, "{}() missing required argument: '{}'", function,
                  parameters.begin()[i]);
}

bool Bound::truth(std::size_t i, bool otherwise) const {
  return values_[i] ? truthy(*values_[i]) : otherwise;
}

std::int64_t Bound::integer(std::size_t i, std::int64_t otherwise) const {
  return values_[i] ? to_index(*values_[i]) : otherwise;
}

const Text& Bound::text(std::size_t i) const {
  const Value& value = (*this)[i];
  require_defined(value);
  if (!value.is(Kind::kString))
    base::raise(ErrorKind::kTemplate, "{}(): expected a str, not {}", function_, type_name(value));
  return value.text();
}

}  // namespace lemma::text::jinja
