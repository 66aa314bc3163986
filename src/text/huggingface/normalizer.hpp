// SPDX-License-Identifier: Apache-2.0
// The normalizer of a tokenizer.json: a list of steps that rewrite text before it is cut. Bytes
// that are not UTF-8 pass through. Immutable and thread-safe.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::text::huggingface {

class Normalizer {
 public:
  /// `json` is the member "normalizer": null for none. Throws kUnsupported for an unknown type.
  explicit Normalizer(const nlohmann::json& json);

  bool empty() const noexcept { return steps_.empty(); }
  std::string run(std::string text) const;

  using Step = std::function<std::string(std::string)>;

 private:
  void add(const nlohmann::json& json, int depth);

  std::vector<Step> steps_;
};

}  // namespace lemma::text::huggingface
