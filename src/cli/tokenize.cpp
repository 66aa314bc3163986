// SPDX-License-Identifier: Apache-2.0
// `lemma tokenize` and `lemma detokenize`. Use the tokenizer as an outsider would; weights are
// never read.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "lemma/tokenizer.hpp"

namespace lemma::cli {
namespace {

/// The text that a token stands for; a control token as the vocabulary spells it. JSON strings hold
/// UTF-8 only, so other bytes become an array of numbers.
nlohmann::json piece_json(const Tokenizer& tokenizer, TokenId id) {
  std::string piece = tokenizer.piece(id);
  if (piece.empty()) piece = tokenizer.token_text(id);
  if (base::is_valid_utf8(piece)) return piece;
  auto bytes = nlohmann::json::array();
  for (const char byte : piece) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

std::string ids_and_pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  auto pieces = nlohmann::json::array();
  for (const TokenId id : ids) pieces.push_back(piece_json(tokenizer, id));
  nlohmann::ordered_json result;
  result["ids"] = ids;
  result["pieces"] = pieces;
  return result.dump() + "\n";
}

/// Ids separated by white space.
std::vector<TokenId> parse_ids(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<TokenId> ids;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty()) return ids;
    const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
    TokenId id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size())
      base::raise(ErrorKind::kUsage, "standard input: expected token ids, found '{}'",
                  base::repair_utf8(word));
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

}  // namespace

int tokenize(const TokenizeOptions& options) {
  const Tokenizer tokenizer = Tokenizer::open(options.model, {.pre_tokenizer = options.pre});
  const std::string text = options.text.from_stdin ? read_stdin() : options.text.text;
  const std::vector<TokenId> ids = tokenizer.encode(
      text, {.add_special = options.add_special, .parse_special = options.parse_special});
  if (tokenizer.starts_with_two_bos(ids))
    write_err("warning: the ids begin with BOS twice: typed, and added by the model's rule\n");
  if (options.json)
    write_out(ids_and_pieces(tokenizer, ids));
  else
    write_out(fmt::format("{}\n", fmt::join(ids, " ")));
  return kDone;
}

int detokenize(const DetokenizeOptions& options) {
  const Tokenizer tokenizer = Tokenizer::open(options.model, {.pre_tokenizer = options.pre});
  const std::vector<TokenId> ids = options.from_stdin ? parse_ids(read_stdin()) : options.ids;
  write_out(tokenizer.decode(ids, options.show_special));
  if (stdout_is_terminal()) write_out("\n");
  return kDone;
}

}  // namespace lemma::cli
