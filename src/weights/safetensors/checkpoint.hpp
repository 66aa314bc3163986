// SPDX-License-Identifier: Apache-2.0
// Opens a Hugging Face folder as a Checkpoint that speaks GGUF's vocabulary: config.json becomes
// metadata, tensors take their GGUF names, and where the two layouts differ a tensor is made from
// the files when it is asked for (translation.hpp). Everything behind weights sees one kind of
// checkpoint. The texts of the tokenizer pass unread:
//
//   tokenizer.huggingface.json      tokenizer.json
//   tokenizer.huggingface.config    tokenizer_config.json
//   tokenizer.huggingface.special   special_tokens_map.json
//   tokenizer.huggingface.generation generation_config.json
//   tokenizer.chat_template         chat_template.jinja, or tokenizer_config.json's chat_template
#pragma once

#include <filesystem>
#include <memory>

#include "weights/checkpoint.hpp"

namespace lemma::weights::safetensors {

/// Whether `path` is a file that open() takes, or a folder that has a config.json
/// and a safetensors file.
bool is_huggingface(const std::filesystem::path& path);

/// Opens the folder, or a safetensors or JSON file of it. Throws kNotFound, kIo, kBadFile, and
/// kUnsupported for a model type, a key or a tensor that is not known.
std::unique_ptr<const Checkpoint> open(const std::filesystem::path& path);

}  // namespace lemma::weights::safetensors
