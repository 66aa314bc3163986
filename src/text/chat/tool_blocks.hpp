// SPDX-License-Identifier: Apache-2.0
// Tool calls as models write them. A syntax is a list of blocks: a marker that opens one, and a
// function that reads it from text which may still grow. What such a function answers must not
// change with more text, except from "more".
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lemma/chat.hpp"
#include "text/chat/json_scan.hpp"

namespace lemma::text::chat {

/// Which arguments of which tools are strings: in syntaxes that write them bare, "5" is then text.
class ToolTypes {
 public:
  /// `tools` is a JSON array of function definitions, or empty. Throws kUsage for other JSON.
  explicit ToolTypes(std::string_view tools);
  /// A bare value as JSON: as it stands where it is JSON and the parameter is no string.
  std::string argument(std::string_view function, std::string_view parameter,
                       std::string_view value) const;

 private:
  enum class Type : std::uint8_t { kString, kOther };
  std::map<std::pair<std::string, std::string>, Type> types_;
};

struct BlockResult {
  Scan scan = Scan::kMalformed;
  std::size_t end = 0;  ///< kDone: one past the block
  std::vector<ToolCall> calls;
};

/// Reads the block that starts `text` with the marker that opened it.
using ReadBlock =
    std::function<BlockResult(std::string_view text, const ToolTypes& types, bool final)>;

struct Block {
  std::string open;
  ReadBlock read;
  /// Only where nothing but white space stands before it in the answer.
  bool at_start = false;
};

/// The blocks of a syntax; the harmony format is read by its own parser (harmony.hpp).
std::vector<Block> blocks_of(ToolSyntax syntax);

// Shared by the files that read blocks.

/// A call from {"name": ..., "arguments": ...}, by any of the names that models use for the two.
std::optional<ToolCall> call_from_json(std::string_view object);
/// A cursor over text that may still grow. A step that fails says whether more text could help; the
/// reader that took it gives up with result().
class Reader {
 public:
  Reader(std::string_view text, bool final) : text_(text), final_(final) {}

  std::size_t at() const noexcept { return at_; }
  std::string_view rest() const noexcept { return text_.substr(at_); }
  bool at_end() const noexcept { return at_ >= text_.size(); }
  void blanks() { at_ = skip_blanks(text_, at_); }

  /// Takes `word`, which must stand here.
  bool word(std::string_view word);
  /// Whether `word` stands here, taking it if so; nothing while that is open.
  std::optional<bool> maybe(std::string_view word);
  /// Takes the text up to `close`, and `close`.
  bool until(std::string_view close, std::string_view& text);
  /// Takes a name: letters, digits and a few signs, at most 256.
  bool name(std::string_view& name);
  /// Takes a JSON value.
  bool json(std::string_view& value);
  /// Takes a JSON object that holds arguments.
  bool arguments(std::string& object);
  /// Fails unless there is more text; white space is skipped.
  bool more();
  bool fail() {
    scan_ = Scan::kMalformed;
    return false;
  }
  /// Fails for want of more text, which at the end of the answer is malformed.
  bool wait() {
    scan_ = final_ ? Scan::kMalformed : Scan::kMore;
    return false;
  }
  BlockResult result() const { return {scan_, 0, {}}; }
  BlockResult done(std::vector<ToolCall> calls) const {
    return {Scan::kDone, at_, std::move(calls)};
  }

 private:
  std::string_view text_;
  bool final_;
  std::size_t at_ = 0;
  Scan scan_ = Scan::kMore;
};

/// An argument's text as the JSON object {"name": value, ...}.
class ArgumentsBuilder {
 public:
  void add(std::string_view name, std::string_view json_value) {
    text_ += (text_.empty() ? "" : ", ") + quote_json(name) + ": " + std::string(json_value);
  }
  std::string take() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

/// True for an object that the rest of the program can read.
bool is_arguments(std::string_view json);

BlockResult read_tagged(std::string_view text, const ToolTypes& types, bool final);
BlockResult read_invokes(std::string_view text, const ToolTypes& types, bool final);
BlockResult read_dsml(std::string_view text, const ToolTypes& types, bool final);
BlockResult read_gemma(std::string_view text, const ToolTypes& types, bool final);
BlockResult read_function_gemma(std::string_view text, const ToolTypes& types, bool final);
BlockResult read_tool_code(std::string_view text, const ToolTypes& types, bool final);
BlockResult read_python_tag(std::string_view text, const ToolTypes& types, bool final);

}  // namespace lemma::text::chat
