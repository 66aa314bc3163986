// SPDX-License-Identifier: Apache-2.0
// The Hugging Face hub: what files a repository has, and which of them make the model that was
// asked for. $HF_ENDPOINT names another hub, $HF_TOKEN a token for private and gated repositories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/models/names.hpp"
#include "cli/models/transfer.hpp"

namespace lemma::cli {

struct HubFile {
  std::string path;  ///< safe (is_safe_path)
  std::uint64_t size = 0;
  std::optional<std::string> sha256;  ///< of large files
};

/// Throws kNotFound, kUsage, kIo, and kBadFile for an answer that is none.
std::vector<HubFile> list_repository(const RemoteModel& model);

/// The files of the model: the GGUF file that it names, with its other parts; without a name the
/// only one; where there is none, the safetensors files and what belongs to them. Throws kUsage
/// listing the choices where there are several, kNotFound where there is nothing to run.
std::vector<HubFile> choose_files(const RemoteModel& model, const std::vector<HubFile>& files);

/// How to fetch a file of the repository.
Request request_for(const RemoteModel& model, const HubFile& file);

}  // namespace lemma::cli
