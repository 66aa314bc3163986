// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/template.hpp"

#include <utility>

#include "text/jinja/renderer.hpp"
#include "text/jinja/syntax.hpp"

namespace lemma::text::jinja {

Template::Template(std::shared_ptr<const Syntax> syntax) : syntax_(std::move(syntax)) {}

Template Template::parse(std::string_view source) {
  return Template(std::make_shared<const Syntax>(jinja::parse(source)));
}

Text Template::render(const Value& variables, const RenderOptions& options) const {
  return Renderer(*syntax_, variables, options).run();
}

}  // namespace lemma::text::jinja
