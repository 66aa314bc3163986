// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back, by the vocabulary inside a checkpoint's metadata. It owns
// the vocabulary, the splitting rules and the special tokens' rules; it holds no state between
// calls, so one Tokenizer serves every thread. Streaming of generated text is Detokenizer
// (text/detokenizer.hpp). Text may be any bytes; nothing here recurses on its length.
//
//   auto tokenizer = Tokenizer::from_metadata(checkpoint->metadata());
//   std::vector<TokenId> ids = tokenizer->encode("Once upon a time");
//   std::string text = tokenizer->decode(ids);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/metadata.hpp"

namespace lemma::text {

using TokenId = std::int32_t;

/// What a token is, with the numbers that GGUF gives these kinds.
enum class TokenKind : std::uint8_t {
  kNormal = 1,       ///< a piece of text
  kUnknown = 2,      ///< stands for text outside the vocabulary
  kControl = 3,      ///< BOS, end of turn, ...: structure, never text
  kUserDefined = 4,  ///< a piece that is cut out of text whole, before anything else
  kUnused = 5,       ///< a reserved place
  kByte = 6,         ///< one byte, spelt <0xNN>
};

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0, end = 0;
};

struct EncodeOptions {
  bool add_special = true;     ///< put BOS in front and EOS behind where the metadata says so
  bool parse_special = false;  ///< text that spells a control token becomes that token
  /// Ascending ranges where it does not, even so: what a person wrote into a prompt. A token that
  /// touches one is not read; words are still cut as if the text were of one piece.
  std::span<const TextRange> plain = {};
};

/// Ids that have a role; absent where neither the metadata nor a well-known name gives one.
struct SpecialTokens {
  std::optional<TokenId> bos, eos, eot, eom, unknown, padding, separator, mask;
  std::optional<TokenId> fim_prefix, fim_suffix, fim_middle;
};

struct DecodeOptions {
  bool show_special = false;  ///< control and unknown tokens appear as the vocabulary spells them
  /// The ids are the start of a text: drop the one blank that a SentencePiece vocabulary put there.
  bool at_text_start = true;
};

/// Facts that some converters leave out or get wrong, as a user may set them.
struct TokenizerOverrides {
  /// SentencePiece: text gets a blank in front, at its start and behind every token that is cut out
  /// whole (the "legacy" rule of Hugging Face). Default: `tokenizer.ggml.add_space_prefix`, and
  /// true where the file lacks it.
  std::optional<bool> add_space_prefix;
  /// The pre-tokenizer's name in place of `tokenizer.ggml.pre`. Refused (kUsage) for a tokenizer
  /// that has none to choose.
  std::optional<std::string> pre;
};

/// What encode() did, for those who ask.
struct EncodeReport {
  std::size_t steps = 0;  ///< characters read and neighbours compared: grows linearly with the text
  std::size_t dropped = 0;  ///< bytes that no token stands for, left out with a warning
};

class Tokenizer {
 public:
  /// Builds the tokenizer that `tokenizer.ggml.*` describes, or else (or first, by kJsonFirstKey)
  /// the tokenizer.json that stands under kJsonKey. Throws kBadFile for keys that are missing, of a
  /// wrong type or that contradict each other, and kUnsupported for a tokenizer model or
  /// pre-tokenizer that is not known (the message lists the known ones).
  static std::unique_ptr<const Tokenizer> from_metadata(const weights::Metadata& metadata,
                                                        TokenizerOverrides overrides = {});
  /// Builds the tokenizer of a tokenizer.json; `config` is the tokenizer_config.json beside it and
  /// `generation` the generation_config.json, which may name further ends; each may be empty.
  static std::unique_ptr<const Tokenizer> from_json(std::string_view json,
                                                    std::string_view config = {},
                                                    TokenizerOverrides overrides = {},
                                                    std::string_view generation = {});

  /// Metadata keys under which a folder's files stand as text: tokenizer.json,
  /// tokenizer_config.json and generation_config.json.
  static constexpr std::string_view kJsonKey = "tokenizer.huggingface.json";
  static constexpr std::string_view kConfigKey = "tokenizer.huggingface.config";
  static constexpr std::string_view kGenerationKey = "tokenizer.huggingface.generation";
  /// True in files of lemma's own whose `tokenizer.ggml.*` were made of the tokenizer.json, which
  /// says more and so is read first.
  static constexpr std::string_view kJsonFirstKey = "tokenizer.huggingface.first";

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The ids of `text`. User-defined pieces always match; control tokens only with parse_special.
  /// BOS is added even where the text itself spells one with parse_special: someone typed it on
  /// purpose, and a warning is logged. What a chat template wrote is encoded without add_special.
  /// What a byte-level vocabulary has no token for is left out, as the references do, with a
  /// warning. Throws kBadFile if the text needs a byte or unknown token that another kind of
  /// vocabulary lacks, and kUsage for a text of 1 GiB or more.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {},
                              EncodeReport* report = nullptr) const;

  /// True if `ids` begin with BOS twice: someone typed BOS and the metadata added one as well. A
  /// program that reads raw text from a person should say so.
  bool starts_with_two_bos(std::span<const TokenId> ids) const noexcept;

  /// The bytes that `ids` stand for, exactly (they need not be valid UTF-8).
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  // The following throw kUsage for an id outside [0, vocabulary_size()).

  /// The bytes that one token adds to a running text: its blank in front is kept.
  std::string piece(TokenId id, bool show_special = false) const;
  /// The token as the vocabulary spells it.
  std::string_view token_text(TokenId id) const;
  TokenKind kind(TokenId id) const;
  bool is_control(TokenId id) const { return kind(id) == TokenKind::kControl; }
  /// True for every token that ends a turn or a text: {eos, eot, eom, ...}.
  bool is_end_of_generation(TokenId id) const;

  std::size_t vocabulary_size() const noexcept;
  const SpecialTokens& special() const noexcept;
  std::optional<TokenId> bos() const noexcept { return special().bos; }
  std::optional<TokenId> eos() const noexcept { return special().eos; }
  std::span<const TokenId> end_of_generation() const noexcept;  ///< ascending
  bool adds_bos() const noexcept;
  bool adds_eos() const noexcept;
  /// True if text gets a blank in front before it is cut, which decode takes away again.
  bool adds_space_prefix() const noexcept;

  /// The token that the vocabulary spells exactly so, whatever its kind.
  std::optional<TokenId> find(std::string_view token_text) const noexcept;

  /// The file's word: `llama` (SentencePiece), `gpt2` (BPE by rank), `gemma4`, `t5` (unigram) or
  /// `bert` (WordPiece) from GGUF; `BPE`, `Unigram`, `WordPiece` or `WordLevel` from JSON.
  std::string_view model_name() const noexcept;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace lemma::text
