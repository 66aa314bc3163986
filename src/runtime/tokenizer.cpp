// SPDX-License-Identifier: Apache-2.0
#include "lemma/tokenizer.hpp"

#include <system_error>
#include <utility>

#include "base/mapped_file.hpp"
#include "lemma/chat.hpp"
#include "runtime/loaded_model.hpp"
#include "runtime/tokenizer_impl.hpp"
#include "text/detokenizer.hpp"
#include "weights/checkpoint.hpp"

namespace lemma {

struct TextStream::Impl {
  std::shared_ptr<const text::Tokenizer> tokenizer;  // outlives the stream
  text::Detokenizer stream;
};

TextStream::TextStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;
TextStream::~TextStream() = default;

std::string TextStream::push(TokenId id) {
  return impl_->stream.push(id);
}
std::string TextStream::finish() {
  return impl_->stream.finish();
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

namespace {

std::string read_text(const std::filesystem::path& path) {
  const base::MappedFile file = base::MappedFile::open(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// `path` itself or the file in it that is a tokenizer.json, or nothing.
std::filesystem::path json_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.extension() == ".json") return path;
  const std::filesystem::path inside = path / "tokenizer.json";
  if (std::filesystem::is_directory(path, ignored) && std::filesystem::exists(inside, ignored)) {
    return inside;
  }
  return {};
}

std::unique_ptr<const text::Tokenizer> open_json(const std::filesystem::path& path,
                                                 text::TokenizerOverrides overrides) {
  const auto beside = [&](const char* name) {
    std::error_code ignored;
    const std::filesystem::path file = path.parent_path() / name;
    return std::filesystem::exists(file, ignored) ? read_text(file) : std::string();
  };
  return text::Tokenizer::from_json(read_text(path), beside("tokenizer_config.json"),
                                    std::move(overrides), beside("generation_config.json"));
}

}  // namespace

Tokenizer Tokenizer::open(const std::filesystem::path& path, const TokenizerOptions& options) {
  return runtime::with_path(path, [&] {
    text::TokenizerOverrides overrides = runtime::overrides_of(options);
    if (const std::filesystem::path json = json_of(path); !json.empty()) {
      return Tokenizer(std::make_shared<const Impl>(Impl{open_json(json, std::move(overrides))}));
    }
    const auto checkpoint = weights::open_checkpoint(path);
    return Tokenizer(std::make_shared<const Impl>(
        Impl{text::Tokenizer::from_metadata(checkpoint->metadata(), std::move(overrides))}));
  });
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  return impl_->text->encode(
      text, {.add_special = options.add_special, .parse_special = options.parse_special});
}

std::vector<TokenId> Tokenizer::encode(const Prompt& prompt) const {
  std::string text;
  std::vector<text::TextRange> plain;
  for (const PromptPiece& piece : prompt.pieces) {
    const std::size_t begin = text.size();
    text += piece.text;
    if (!piece.from_template) plain.push_back({begin, text.size()});
  }
  return impl_->text->encode(text, {.add_special = false, .parse_special = true, .plain = plain});
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool show_special) const {
  return impl_->text->decode(ids, {.show_special = show_special, .at_text_start = true});
}

std::string Tokenizer::piece(TokenId id) const {
  return impl_->text->piece(id);
}

std::string Tokenizer::token_text(TokenId id) const {
  return std::string(impl_->text->token_text(id));
}

TextStream Tokenizer::stream(bool show_special) const {
  return TextStream(std::make_unique<TextStream::Impl>(TextStream::Impl{
      impl_->text, text::Detokenizer(*impl_->text, {.show_special = show_special})}));
}

std::size_t Tokenizer::vocabulary_size() const noexcept {
  return impl_->text->vocabulary_size();
}

std::optional<TokenId> Tokenizer::bos() const noexcept {
  return impl_->text->bos();
}

std::optional<TokenId> Tokenizer::eos() const noexcept {
  return impl_->text->eos();
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return impl_->text->is_end_of_generation(id);
}

bool Tokenizer::starts_with_two_bos(std::span<const TokenId> ids) const noexcept {
  return impl_->text->starts_with_two_bos(ids);
}

}  // namespace lemma
