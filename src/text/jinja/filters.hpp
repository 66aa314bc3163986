// SPDX-License-Identifier: Apache-2.0
// Filters and tests by name: those of Jinja, with the tojson of chat templates. The ones that are
// not supported (urlize, random, pprint, wordwrap, striptags) raise when they are used.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.hpp"

namespace lemma::text::jinja {

using Filter = Value (*)(Renderer&, const Value&, Arguments);
using Test = bool (*)(Renderer&, const Value&, Arguments);

/// Null where there is none of that name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

/// The filters of one file each.
const std::vector<NamedFilter>& text_filters();
const std::vector<NamedFilter>& value_filters();
const std::vector<NamedFilter>& sequence_filters();
const std::vector<NamedFilter>& selection_filters();

/// Reads "a.b.0" of an item by Jinja's rule; the item itself for None.
class AttributeGetter {
 public:
  AttributeGetter(Renderer& renderer, const Value& attribute);
  Value operator()(const Value& item) const;

 private:
  Renderer& renderer_;
  std::vector<Value> parts_;
};

/// A string in lower case, anything else as it is: the key of an order without regard to case.
Value ignore_case(Renderer& renderer, const Value& value);

}  // namespace lemma::text::jinja
