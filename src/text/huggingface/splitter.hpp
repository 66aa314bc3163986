// SPDX-License-Identifier: Apache-2.0
// Splitter: the pre-tokenizer of a tokenizer.json. A list of steps, each of which cuts every piece
// of the text further, and may rewrite it (Metaspace spells blanks, ByteLevel spells bytes). The
// text is copied only by steps that rewrite it. Immutable and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/pretokenizer.hpp"

namespace lemma::text::huggingface {

/// Bytes [begin, end) of Pieces::text.
struct Piece {
  std::uint32_t begin, end;
  bool at_start;  ///< the piece begins where the user's text does
};

/// A text cut into pieces. `text` looks into the caller's text or into `owned`.
struct Pieces {
  std::string_view text;
  std::string owned;
  std::vector<Piece> list;
  SplitScratch* scratch = nullptr;
};

/// One step. Its run() replaces the pieces by finer ones.
class SplitStep {
 public:
  virtual ~SplitStep() = default;
  virtual void run(Pieces& pieces) const = 0;
};

class Splitter {
 public:
  /// `json` is the member "pre_tokenizer": null for none. Where `bytes_last` and the last step only
  /// spells bytes in GPT-2's alphabet, it is left out: ends_in_bytes() then says so.
  Splitter(const nlohmann::json& json, bool bytes_last);

  void run(Pieces& pieces) const {
    for (const auto& step : steps_) step->run(pieces);
  }
  bool empty() const noexcept { return steps_.empty(); }
  bool ends_in_bytes() const noexcept { return ends_in_bytes_; }

 private:
  std::vector<std::unique_ptr<const SplitStep>> steps_;
  bool ends_in_bytes_ = false;
};

}  // namespace lemma::text::huggingface
