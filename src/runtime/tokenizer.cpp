// SPDX-License-Identifier: Apache-2.0
#include "lemma/tokenizer.hpp"

#include <utility>

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

Tokenizer Tokenizer::open(const std::filesystem::path& path) {
  return runtime::with_path(path, [&] {
    const auto checkpoint = weights::open_checkpoint(path);
    return Tokenizer(
        std::make_shared<const Impl>(Impl{text::Tokenizer::from_metadata(checkpoint->metadata())}));
  });
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  return impl_->text->encode(
      text, {.add_special = options.add_special, .parse_special = options.parse_special});
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

TextStream Tokenizer::stream() const {
  return TextStream(std::make_unique<TextStream::Impl>(
      TextStream::Impl{impl_->text, text::Detokenizer(*impl_->text)}));
}

std::size_t Tokenizer::vocabulary_size() const noexcept {
  return impl_->text->vocabulary_size();
}

std::optional<TokenId> Tokenizer::bos() const noexcept {
  return impl_->text->bos();
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return impl_->text->is_end_of_generation(id);
}

bool Tokenizer::starts_with_two_bos(std::span<const TokenId> ids) const noexcept {
  return impl_->text->starts_with_two_bos(ids);
}

}  // namespace lemma
