// SPDX-License-Identifier: Apache-2.0
// Opening the chat template of a model: the one part of lemma::ChatTemplate that reads files.
#include <fstream>
#include <iterator>
#include <string>

#include "base/raise.hpp"
#include "lemma/chat.hpp"
#include "runtime/loaded_model.hpp"
#include "text/tokenizer.hpp"
#include "weights/checkpoint.hpp"

namespace lemma {
namespace {

constexpr std::uintmax_t kLargestTemplate = 16u << 20;
constexpr std::string_view kKey = "tokenizer.chat_template";

std::string read_template(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) base::raise(ErrorKind::kNotFound, "no such file");
  if (size > kLargestTemplate)
    base::raise(ErrorKind::kBadFile, "a template of {} bytes, expected at most {}", size,
                kLargestTemplate);
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file || text.size() != size) base::raise(ErrorKind::kIo, "cannot be read");
  return text;
}

/// How the vocabulary spells a token; empty where it has none of that role. A file that names the
/// token itself spares the making of a whole tokenizer.
std::string spelling(const weights::Metadata& metadata, const std::string& role) {
  const std::string key = "tokenizer.ggml." + role + "_token_id";
  if (metadata.has(key) && metadata.has("tokenizer.ggml.tokens")) {
    const auto& tokens = metadata.strings("tokenizer.ggml.tokens");
    const std::uint32_t id = metadata.u32(key);
    if (id >= tokens.size())
      base::raise(ErrorKind::kBadFile, "{} = {} is outside the vocabulary of {} tokens", key, id,
                  tokens.size());
    return tokens[id];
  }
  const auto tokenizer = text::Tokenizer::from_metadata(metadata);
  const auto id = role == "bos" ? tokenizer->bos() : tokenizer->eos();
  return id ? std::string(tokenizer->token_text(*id)) : std::string();
}

/// Where the template stands. A model may have several, each under its name.
std::string key_of(const weights::Metadata& metadata, std::string_view name) {
  std::string key(kKey);
  if (!name.empty()) key += "." + std::string(name);
  if (metadata.has(key)) return key;
  std::string names;
  for (const auto& [each, value] : metadata.pairs())
    if (each.starts_with(kKey) && each.size() > kKey.size() + 1 && each[kKey.size()] == '.')
      names += (names.empty() ? "" : ", ") + each.substr(kKey.size() + 1);
  if (name.empty() && names.empty())
    base::raise(ErrorKind::kNotFound, "the model has no chat template");
  const std::string what = name.empty() ? "default" : "'" + std::string(name) + "'";
  base::raise(ErrorKind::kNotFound, "the model has no {} chat template; it has: {}", what,
              names.empty() ? "the default one" : names);
}

}  // namespace

ChatTemplate ChatTemplate::open(const std::filesystem::path& path, std::string_view name) {
  return runtime::with_path(path, [&] {
    if (path.extension() == ".jinja") {
      if (name.empty()) return parse(read_template(path));
      base::raise(ErrorKind::kUsage, "a template's own file has no template '{}' in it", name);
    }
    const auto checkpoint = weights::open_checkpoint(path);
    const weights::Metadata& metadata = checkpoint->metadata();
    return parse(metadata.string(key_of(metadata, name)), spelling(metadata, "bos"),
                 spelling(metadata, "eos"));
  });
}

}  // namespace lemma
