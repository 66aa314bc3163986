// SPDX-License-Identifier: Apache-2.0
// Config: one object of a config.json, read key by key. It remembers what was asked for, so that a
// key that no one knows is refused by name instead of being passed over; types and ranges are
// checked, and the key is named in the error. A key whose value is null counts as absent.
//
//   const Config config = Config::parse(text, "config.json");
//   std::uint32_t layers = config.u32("num_hidden_layers");
//   config.refuse_unread("llama");
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::weights::safetensors {

class Config {
 public:
  /// Parses an object; `path` stands in messages. Throws kBadFile for anything else, a key that
  /// stands twice, or a nesting deeper than any config has.
  static Config parse(std::string_view text, const std::string& path);

  /// The same object with the keys of `defaults`, a JSON object of lemma's own, that it lacks.
  Config completed(std::string_view defaults) const;

  bool has(std::string_view key) const;
  std::vector<std::string> keys() const;

  // Required keys; each counts as read.
  std::uint32_t u32(std::string_view key) const;
  float f32(std::string_view key) const;  ///< an integer counts as a number here; finite
  bool boolean(std::string_view key) const;
  std::string string(std::string_view key) const;
  std::vector<std::uint32_t> u32s(std::string_view key) const;
  std::vector<float> f32s(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;
  Config object(std::string_view key) const;
  std::vector<Config> objects(std::string_view key) const;

  // The same with a value for an absent key.
  std::uint32_t u32_or(std::string_view key, std::uint32_t fallback) const;
  float f32_or(std::string_view key, float fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;

  bool is_object(std::string_view key) const;
  bool is_number(std::string_view key) const;
  bool is_list(std::string_view key) const;
  /// Counts `key` as read.
  void ignore(std::string_view key) const;
  /// Throws kUnsupported naming the first key of this object that was not read and does not switch
  /// something off (false, 0, "", an empty list).
  void refuse_unread(std::string_view model) const;

 private:
  struct Document;
  Config(std::shared_ptr<Document> document, const nlohmann::json* node, std::string prefix);
  const nlohmann::json* find(std::string_view key) const;
  const nlohmann::json& at(std::string_view key, std::string_view expected) const;
  std::string where(std::string_view key) const;

  std::shared_ptr<Document> document_;
  const nlohmann::json* node_;
  std::string prefix_;  ///< of nested keys: "text_config."
};

}  // namespace lemma::weights::safetensors
