// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back, by the vocabulary inside a checkpoint. Opening one reads
// metadata only, so a checkpoint without weights will do. Thread-safe; copies share one vocabulary.
//
//   auto tokenizer = lemma::Tokenizer::open("model.gguf");
//   std::vector<lemma::TokenId> ids = tokenizer.encode("Once upon a time");
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lemma {

using TokenId = std::int32_t;

struct EncodeOptions {
  bool add_special = true;     ///< BOS in front and EOS behind, where the checkpoint says so
  bool parse_special = false;  ///< text that spells a control token becomes that token
};

/// Facts about a checkpoint's tokenizer that a user may set.
struct TokenizerOptions {
  /// The pre-tokenizer's name in place of the file's; empty: the file's. An unknown name is an
  /// error that lists the known ones.
  std::string pre_tokenizer;
};

/// Text out of a stream of tokens: bytes are held back until they are whole UTF-8 characters, and
/// nothing is lost: what push() and finish() return together is the text of all tokens at once.
class TextStream {
 public:
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;
  ~TextStream();
  std::string push(TokenId id);
  std::string finish();

 private:
  friend class Tokenizer;
  struct Impl;
  explicit TextStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct Prompt;  // lemma/chat.hpp

class Tokenizer {
 public:
  /// Reads the vocabulary of the checkpoint at `path`: a GGUF file, a tokenizer.json, or a folder
  /// that holds one of these (the tokenizer.json counts first). Throws lemma::Error.
  static Tokenizer open(const std::filesystem::path& path, const TokenizerOptions& options = {});

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The ids of a chat prompt, which says itself where it begins: control tokens come out of what
  /// its template wrote, and out of nothing else.
  std::vector<TokenId> encode(const Prompt& prompt) const;
  /// The bytes that `ids` stand for as a text from its start; control tokens show if asked.
  std::string decode(std::span<const TokenId> ids, bool show_special = false) const;
  /// The bytes that one token adds to a running text; a control token adds none.
  std::string piece(TokenId id) const;
  /// The token as the vocabulary spells it. Throws kUsage for an id outside the vocabulary.
  std::string token_text(TokenId id) const;
  /// A stream for tokens that continue a text. With `show_special`, control tokens are spelt, which
  /// is what a ChatParser takes.
  TextStream stream(bool show_special = false) const;

  std::size_t vocabulary_size() const noexcept;
  std::optional<TokenId> bos() const noexcept;
  std::optional<TokenId> eos() const noexcept;
  bool is_end_of_generation(TokenId id) const;
  /// True if `ids` begin with BOS twice: typed by a person and added by the checkpoint's rule.
  bool starts_with_two_bos(std::span<const TokenId> ids) const noexcept;

 private:
  friend class Engine;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lemma
