// SPDX-License-Identifier: Apache-2.0
// Quantizing a model: every matrix of a checkpoint, whatever container it came in, goes into a GGUF
// file in the format that a recipe gives it; vectors, routers and tables of positions keep their
// values. What the file says of its model is taken over unchanged. The output grows beside its
// name, is renamed when it is whole and has been read back, and an interrupted one is taken up
// where it stopped.
//
//   quantize::Options options{.recipe = quantize::recipe_by_name("Q4_K_M")};
//   const quantize::Report report = quantize::quantize(*checkpoint, "model-q4.gguf", options);
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/progress.hpp"
#include "quantize/hessians.hpp"
#include "quantize/importance.hpp"
#include "quantize/recipe.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::quantize {

struct Options {
  Recipe recipe;
  std::vector<NamedRule> rules;
  const Importance* importance = nullptr;
  /// Chooses codes by GPTQ where a matrix's inputs are known. Of the model that is quantized.
  Hessians* hessians = nullptr;
  std::string calibration;  ///< a digest of what `hessians` are collected from
  double damping = 0.01;    ///< of Hessians, a part of the diagonal's mean
  int threads = 1;
  base::Progress progress;
};

/// Something that a user should know, and the tensors of which it is true.
struct Note {
  std::string text;
  std::vector<std::string> tensors;
};

struct Report {
  std::map<Format, std::uint64_t> bytes;  ///< of tensors, by format
  std::uint64_t bytes_in = 0, bytes_out = 0;
  std::size_t tensors = 0, resumed = 0;  ///< resumed: were there from an earlier attempt
  std::vector<Note> notes;

  void add_note(const std::string& tensor, std::string text);
};

/// One tensor of the output.
struct Planned {
  const weights::TensorInfo* source = nullptr;
  Format format = Format::kF32;
  std::string note;
};

/// What quantize() would make of each tensor, in the order of the file. Throws kUsage for rules
/// that no tensor matches or that do not fit, and what planning the model throws.
std::vector<Planned> plan_output(const weights::Checkpoint& checkpoint, const Options& options);

/// Writes `out`. Throws lemma::Error, kUsage for a format that GPTQ does not know, kBadFile among
/// them for a weight that is not finite; `out` is not there then, or is what it was.
Report quantize(const weights::Checkpoint& checkpoint, const std::filesystem::path& out,
                const Options& options);

}  // namespace lemma::quantize
