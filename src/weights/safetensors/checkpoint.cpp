// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/checkpoint.hpp"

#include <fmt/ranges.h>

#include <unordered_map>

#include "base/raise.hpp"
#include "weights/safetensors/folder.hpp"
#include "weights/safetensors/translation.hpp"

namespace lemma::weights::safetensors {
namespace {

using base::raise;
namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfig = 16u << 20, kMaxTokenizer = 512u << 20;

class SafetensorsCheckpoint final : public Checkpoint {
 public:
  SafetensorsCheckpoint(Folder folder, Metadata metadata, std::vector<TensorInfo> tensors)
      : folder_(std::move(folder)), metadata_(std::move(metadata)), tensors_(std::move(tensors)) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  }

  const Metadata& metadata() const noexcept override { return metadata_; }
  const std::vector<TensorInfo>& tensors() const noexcept override { return tensors_; }
  const std::vector<fs::path>& files() const noexcept override { return folder_.files(); }
  const TensorInfo* find(std::string_view name) const noexcept override {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
  }

 private:
  Folder folder_;  // owns the mappings that tensors_ points to
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;
};

void add_text(const Folder& folder, std::string_view file, std::string key, Metadata& metadata) {
  if (auto text = folder.text(file, kMaxTokenizer))
    metadata.add(std::move(key), Value{std::move(*text), "string"});
}

/// The template's own file, and a key of tokenizer_config.json: one text, or several by name. A
/// further one stands under its name, as in GGUF.
void add_chat_templates(const Folder& folder, Metadata& metadata) {
  constexpr const char* kName = "chat_template";
  const std::string key = std::string("tokenizer.") + kName;
  const auto add = [&](const std::string& where, std::string text) {
    if (!metadata.has(where)) metadata.add(where, Value{std::move(text), "string"});
  };
  if (auto text = folder.text("chat_template.jinja", kMaxConfig)) add(key, std::move(*text));
  const auto text = folder.text("tokenizer_config.json", kMaxTokenizer);
  if (!text) return;
  const Config config = Config::parse(*text, (folder.path() / "tokenizer_config.json").string());
  if (!config.has(kName)) return;
  if (!config.is_list(kName)) return add(key, config.string(kName));
  for (const Config& one : config.objects(kName)) {
    const std::string name = one.string("name");
    add(name == "default" ? key : key + "." + name, one.string("template"));
  }
}

void add_texts(const Folder& folder, Metadata& metadata) {
  add_text(folder, "tokenizer.json", "tokenizer.huggingface.json", metadata);
  add_text(folder, "tokenizer_config.json", "tokenizer.huggingface.config", metadata);
  add_text(folder, "special_tokens_map.json", "tokenizer.huggingface.special", metadata);
  add_text(folder, "generation_config.json", "tokenizer.huggingface.generation", metadata);
  add_chat_templates(folder, metadata);
}

/// The ids that config.json states, for tokenizers that do not say them better.
void add_token_ids(const Config& config, Metadata& metadata) {
  for (const char* which : {"bos", "eos", "pad"}) {
    const std::string key = std::string(which) + "_token_id";
    if (!config.is_number(key)) continue;
    metadata.add(std::string("tokenizer.ggml.") + key, Value{std::int64_t{config.u32(key)}, "u32"});
  }
}

/// The family of a model, or of the wrapper around it, which knows more where both are known.
const Family& family_of(const Config& whole, const Config& config) {
  std::string name = whole.string_or("model_type", "");
  if (const Family* family = find_family(name)) return *family;
  if (config.has("model_type")) name = config.string("model_type");
  if (const Family* family = find_family(name)) return *family;
  raise(ErrorKind::kUnsupported, "{}: model type '{}' is not supported; known are {}", kConfigFile,
        name, fmt::join(known_model_types(), ", "));
}

}  // namespace

bool is_huggingface(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    if (!fs::exists(path / kConfigFile, error)) return false;
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
      if (it->path().extension() == ".safetensors") return true;
    return false;
  }
  return path.extension() == ".safetensors" || path.filename() == kConfigFile ||
         path.filename() == kIndexFile;
}

std::unique_ptr<const Checkpoint> open(const fs::path& path) {
  Folder folder(path);
  const std::string config_path = (folder.path() / kConfigFile).string();
  const auto text = folder.text(kConfigFile, kMaxConfig);
  if (!text) raise(ErrorKind::kNotFound, "{}: no such file", config_path);
  try {
    const Config whole = Config::parse(*text, std::string(kConfigFile));
    // A wrapper for images or sound keeps the text model's keys in an object of their own.
    const bool wrapped = whole.is_object("text_config");
    const Config config = wrapped ? whole.object("text_config") : whole;
    const Family& family = family_of(whole, config);
    Translation translation(family, config, whole, folder);
    translation.run();
    add_texts(folder, translation.metadata);
    add_token_ids(config, translation.metadata);
    return std::make_unique<SafetensorsCheckpoint>(
        std::move(folder), std::move(translation.metadata), std::move(translation.tensors));
  } catch (const Error& error) {
    throw error.within(folder.path().string());
  }
}

}  // namespace lemma::weights::safetensors
