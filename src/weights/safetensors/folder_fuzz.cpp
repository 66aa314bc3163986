// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder whose texts are any bytes must open as a checkpoint or throw lemma::Error;
// what opens is read to the last byte. The input is config.json, and behind a zero byte the index;
// the tensors are those of a tiny Llama, so that a whole translation is within reach.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <unistd.h>

#include "lemma/error.hpp"
#include "weights/safetensors/checkpoint.hpp"
#include "weights/safetensors/folder.hpp"
#include "weights/safetensors/writer.hpp"
#include "weights/view.hpp"

namespace {

namespace fs = std::filesystem;
using namespace lemma::weights;

/// The folder of this process; its tensors are written once.
const fs::path& folder() {
  static const fs::path path = [] {
    fs::path made = fs::temp_directory_path() / ("lemma-fuzz-" + std::to_string(::getpid()));
    fs::create_directories(made);
    std::atexit([] {
      std::error_code error;
      fs::remove_all(fs::temp_directory_path() / ("lemma-fuzz-" + std::to_string(::getpid())),
                     error);
    });
    std::vector<SafetensorsTensor> tensors = {{"model.embed_tokens.weight", "F32", {6, 8}},
                                              {"model.norm.weight", "BF16", {8}}};
    const std::string layer = "model.layers.0.";
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      tensors.push_back({layer + norm, "F16", {8}});
    for (const char* square : {"self_attn.q_proj.weight", "self_attn.o_proj.weight"})
      tensors.push_back({layer + square, "F32", {8, 8}});
    for (const char* narrow : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"})
      tensors.push_back({layer + narrow, "F8_E4M3", {4, 8}});
    for (const char* up : {"mlp.gate_proj.weight", "mlp.up_proj.weight"})
      tensors.push_back({layer + up, "F32", {12, 8}});
    tensors.push_back({layer + "mlp.down_proj.weight", "F32", {8, 12}});
    SafetensorsWriter writer(made / "model.safetensors", tensors, {});
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      std::size_t bytes = tensors[i].dtype == "F32" ? 4 : tensors[i].dtype == "F8_E4M3" ? 1 : 2;
      for (const std::uint64_t n : tensors[i].shape) bytes *= n;
      writer.write(i, 0, std::vector<std::byte>(bytes, std::byte{0x11}));
    }
    writer.publish();
    return made;
  }();
  return path;
}

void open(const fs::path& path) {
  try {
    const auto checkpoint = safetensors::open(path);
    for (const TensorInfo& tensor : checkpoint->tensors())
      to_f32(bind(*checkpoint, {tensor.name, View::whole()}, tensor.rows(), tensor.row_elements()));
  } catch (const lemma::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = input.find('\0');
  std::ofstream(folder() / safetensors::kConfigFile) << input.substr(0, cut);
  open(folder());
  if (cut == std::string_view::npos) return 0;
  try {
    safetensors::parse_index(input.substr(cut + 1), "index");
  } catch (const lemma::Error&) {
  }
  return 0;
}
