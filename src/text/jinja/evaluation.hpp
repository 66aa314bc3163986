// SPDX-License-Identifier: Apache-2.0
// What the renderer's files share: guards for its depth and its output, and the rules of
// namespaces.
#pragma once

#include <utility>

#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"

namespace lemma::text::jinja {

class Renderer::Depth {
 public:
  explicit Depth(Renderer& renderer) : renderer_(renderer) {
    if (renderer.depth_ >= renderer.options_.limits.depth)
      base::raise(ErrorKind::kTemplate, "evaluations nest more than {} deep",
                  renderer.options_.limits.depth);
    ++renderer.depth_;
  }
  ~Depth() { --renderer_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Renderer& renderer_;
};

class Renderer::Capture {
 public:
  Capture(Renderer& renderer, TextBuilder& out)
      : renderer_(renderer), outer_(std::exchange(renderer.out_, &out)) {}
  ~Capture() { renderer_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  Renderer& renderer_;
  TextBuilder* outer_;
};

/// Throws for a name that chat templates may not store (one that starts with an underscore).
void set_namespace_attribute(Namespace& name_space, std::string_view name, Value value);

}  // namespace lemma::text::jinja
