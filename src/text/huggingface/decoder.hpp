// SPDX-License-Identifier: Apache-2.0
// The decoder of a tokenizer.json, as far as it gives each token a text of its own and the first
// token of a text at most a blank less: what streaming needs, and what language models use.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lemma::text::huggingface {

class Decoder {
 public:
  /// `json` is the member "decoder": null means that tokens are joined by blanks. Throws
  /// kUnsupported for an unknown type.
  explicit Decoder(const nlohmann::json& json);

  /// The bytes that a token adds to a running text.
  std::string piece(std::string token) const;
  /// A text's first blank is the decoder's own and does not count.
  bool drops_first_blank() const noexcept { return drops_first_blank_; }

  using Step = std::function<std::string(std::string)>;

 private:
  void add(const nlohmann::json& json, int depth);
  void add_strip(const nlohmann::json& json);

  std::vector<Step> steps_;
  bool fused_ = false;  ///< the steps so far made one text of all tokens
  bool drops_first_blank_ = false;
};

}  // namespace lemma::text::huggingface
