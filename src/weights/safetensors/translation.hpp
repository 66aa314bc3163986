// SPDX-License-Identifier: Apache-2.0
// Translation: a Hugging Face model said in the vocabulary of GGUF. A family is data: which keys of
// its config.json are which keys of GGUF, which tensors are which; what tables cannot say is one
// function of the family. The families stand in names/; adding one is an entry there. Whatever a
// family does not name, key or tensor, is refused by name at the end.
//
//   Stems: the rule {"layers.#.mlp.up_proj", "blk.#.ffn_up"} moves layers.3.mlp.up_proj.weight to
//   blk.3.ffn_up.weight, and the bias beside it where there is one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/metadata.hpp"
#include "weights/safetensors/config.hpp"
#include "weights/safetensors/folder.hpp"
#include "weights/safetensors/source.hpp"

namespace lemma::weights::safetensors {

class Translation;

/// A key of config.json that becomes a key under the architecture's prefix. Absent stays absent.
struct KeyRule {
  std::string_view hf, gguf;
  enum class Type : std::uint8_t { kWhole, kReal, kFlag } type = Type::kWhole;
};
using enum KeyRule::Type;

/// How a tensor's values differ in the two vocabularies.
enum class Change : std::uint8_t {
  kNone,
  kQueryRows,  ///< rows of each head from halves to neighbouring pairs (interleaved rotation)
  kKeyRows,    ///< the same for KV heads
  kTranspose,  ///< weight [in, out] -> [out, in] (Conv1D)
  kAddOne,     ///< weight w -> 1 + w, a norm around zero
  kNegExp,     ///< -exp(w), a decay stored as its logarithm
  kSqueeze,    ///< without dimensions of 1
};

/// `pattern` with a layer's number in the place of its #.
std::string numbered(std::string_view pattern, std::uint32_t layer);

struct TensorRule {
  std::string_view hf, gguf;
  Change change = Change::kNone;
  bool exact = false;  ///< whole names instead of stems
};

/// How a family's files name the blocks that draft. What is no block of one of these forms, or of a
/// family without, is left out: it changes no result of the model itself.
enum class Drafts : std::uint8_t {
  kNone,
  kLayers,  ///< layers.L.*, behind the last layer
  kBlocks,  ///< mtp.0.*, by number, each with e_proj and h_proj
  kModule,  ///< one: mtp.layers.0.*, mtp.fc, mtp.pre_fc_norm_*, mtp.norm
};

struct Family {
  std::string_view model_type;    ///< as config.json names it
  std::string_view architecture;  ///< general.architecture
  /// Of every tensor of the model but its head: "model.". Files of the model without a head may
  /// leave it out.
  std::string_view prefix;
  std::span<const KeyRule> keys;
  std::span<const TensorRule> tensors;
  // What the tables cannot say, before and after the tensors of the table were moved; may be null.
  void (*more_keys)(Translation&) = nullptr;
  void (*more_tensors)(Translation&) = nullptr;
  bool latent = false;  ///< latent attention: head_dim in config.json is not the width of a head
  /// What published files leave out because it is the default of their code, as a JSON object.
  std::string_view defaults = "{}";
  Drafts drafts = Drafts::kNone;
};

/// The family called `model_type`, or nullptr.
const Family* find_family(std::string_view model_type) noexcept;
/// All model types, sorted.
std::vector<std::string_view> known_model_types();

class Translation {
 public:
  /// Reads `folder` as a model of `family`; `config` is the part for text of `whole`, which may be
  /// the same. Keeps references.
  Translation(const Family& family, const Config& config, Config whole, const Folder& folder);

  /// Runs the whole translation: tables, the family's function, refusals.
  void run();

  Metadata metadata;
  std::vector<TensorInfo> tensors;

  // For the families.

  const Config& config() const noexcept { return config_; }
  std::string_view model_type() const noexcept { return family_.model_type; }
  std::uint32_t layers() const noexcept { return layers_; }  ///< of the model itself
  std::uint32_t blocks() const noexcept { return blocks_; }  ///< with those that draft
  std::uint32_t heads() const noexcept { return heads_; }
  std::uint32_t kv_heads() const noexcept { return kv_heads_; }
  std::uint32_t head_dim() const noexcept { return head_dim_; }

  // Keys under the architecture's prefix. A key is set once; the common ones (sizes, heads, eps)
  // follow where the family has not set them.
  void set(std::string_view suffix, std::uint32_t value);
  void set(std::string_view suffix, float value);
  void set(std::string_view suffix, bool value);
  void set(std::string_view suffix, std::string_view value);
  void set(std::string_view suffix, const char* value) { set(suffix, std::string_view(value)); }
  void set(std::string_view suffix, const std::vector<bool>& values);
  void set(std::string_view suffix, const std::vector<std::uint32_t>& values);
  void set(std::string_view suffix, const std::vector<float>& values);
  bool is_set(std::string_view suffix) const;
  /// Throws kUnsupported unless `key` is absent or the string `value` (or one of `also`).
  void require(std::string_view key, std::string_view value, std::string_view also = "") const;
  /// Throws kUnsupported unless `key` is absent or the flag or the number `value`.
  void require_flag(std::string_view key, bool value) const;
  void require_number(std::string_view key, float value) const;

  // Tensors, by their names without the family's prefix. What is taken counts as used.
  bool has(std::string_view name) const;
  Source take(const std::string& name);
  /// The pair `name`_blocks and `name`_scales of MXFP4.
  Source take_mxfp4(const std::string& name);
  /// A table of whole numbers as I32.
  Source take_ids(const std::string& name);
  void put(std::string gguf, Source source);
  /// Counts a tensor as used that the model has no use for.
  void drop(std::string_view name) { used_.emplace(name); }
  /// Moves what `rule` names in each layer (or once), where it exists.
  void move(const TensorRule& rule);
  /// Moves the experts layers.N.PATH.<e>.STEM.weight, or what stands as a stack under PATH, into
  /// one stack blk.N.GGUF.weight for every layer that has them.
  void stack_experts(std::string_view path, std::string_view stem, std::string_view gguf,
                     std::uint32_t experts);
  /// Halves of each head's first `rotary_dim` rows become neighbouring pairs.
  Source interleave(Source source, std::uint32_t heads, std::uint32_t rotary_dim) const;

  /// Rotation (rope.cpp): rope_parameters, or rope_theta and rope_scaling. `rotary_dim` is that of
  /// a whole head before partial_rotary_factor.
  struct RopeOptions {
    std::uint32_t head_dim = 0;
    bool latent = false;    ///< latent attention states YaRN's magnitudes by another key
    bool magnitude = true;  ///< false: the family has none, whatever config.json says
    float theta = 10000.f;  ///< where config.json says nothing
    bool fixed_theta = false;
    std::string_view theta_key = "rope.freq_base";
  };
  void rope(const RopeOptions& options);
  /// The parameters of one kind of layer where rope_parameters has several.
  bool has_rope_of(std::string_view layer_type) const;
  Config rope_of(std::string_view layer_type) const;
  void rope(const RopeOptions& options, const Config& parameters);
  std::uint32_t rotary_dim() const noexcept { return rotary_dim_; }

  /// Which layers of layer_types are called `name`; nothing where the key is absent.
  std::vector<bool> layers_called(std::string_view name,
                                  std::string_view key = "layer_types") const;

 private:
  void canonical_names();
  void read_dimensions();
  void common_keys();
  std::uint32_t dimension(std::span<const std::string_view> names) const;
  void count_layers();
  void count_drafts();
  void rename_drafts();
  bool of_a_draft(std::string_view name) const;
  Source stored(const Stored& tensor) const;

  // quantized.cpp
  void read_quantization();
  const Stored* beside(const std::string& stem, std::string_view suffix);
  bool has_packed(std::string_view name) const;
  Source take_packed(const std::string& name);
  Source take_fp8(const std::string& name, const Stored& weight);

  Source changed(Source source, Change change, bool bias) const;
  void move_one(const std::string& hf, const std::string& gguf, Change change, bool bias);
  void head_and_table();
  void refuse_unused() const;
  void add(std::string_view suffix, Value value);

  /// quantization_config, as far as it says how bytes are to be read.
  struct Quantization {
    std::string method;
    std::uint32_t bits = 4, group_size = 128;
    bool zero_offset = false;
    std::uint32_t tile_rows = 128, tile_cols = 128;
  };

  const Family& family_;
  Quantization quantization_;
  Config config_, whole_;
  const Folder& folder_;
  std::map<std::string, const Stored*, std::less<>> names_;
  std::set<std::string, std::less<>> used_;
  std::set<std::string, std::less<>> made_;  ///< names in `tensors`
  std::uint32_t layers_ = 0, blocks_ = 0;    ///< blocks behind the layers predict further tokens
  std::uint32_t width_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, rotary_dim_ = 0;
};

}  // namespace lemma::weights::safetensors
