// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/config.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/raise.hpp"

namespace lemma::weights::safetensors {
namespace {

using base::raise;
using Json = nlohmann::json;

constexpr int kMaxDepth = 32;

/// The number `json` as `what`, for one value or an element of a list.
std::uint32_t whole(const Json& json, const std::string& what) {
  if (json.is_number_unsigned() &&
      json.get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max())
    return json.get<std::uint32_t>();
  raise(ErrorKind::kBadFile, "{}: expected a whole number below 2^32, found {}", what,
        json.is_number() ? json.dump() : json.type_name());
}

float real(const Json& json, const std::string& what) {
  if (json.is_number()) {
    const double value = json.get<double>();
    if (std::fabs(value) <= std::numeric_limits<float>::max()) return static_cast<float>(value);
  }
  raise(ErrorKind::kBadFile, "{}: expected a finite number, found {}", what,
        json.is_number() ? json.dump() : json.type_name());
}

bool switched_off(const Json& json) {
  if (json.is_boolean()) return !json.get<bool>();
  if (json.is_number()) return json.get<double>() == 0.0;
  if (json.is_string()) return json.get_ref<const std::string&>().empty();
  return json.is_null() || json.empty();
}

}  // namespace

struct Config::Document {
  Json root;
  std::string path;
  std::set<std::string, std::less<>> read;  ///< with their prefixes
};

Config::Config(std::shared_ptr<Document> document, const Json* node, std::string prefix)
    : document_(std::move(document)), node_(node), prefix_(std::move(prefix)) {}

Config Config::parse(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  bool deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth) deep = true;
    if (deep) return false;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  auto document = std::make_shared<Document>();
  document->path = path;
  document->root = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (deep) raise(ErrorKind::kBadFile, "{}: nested deeper than {} levels", path, kMaxDepth);
  if (!document->root.is_object()) raise(ErrorKind::kBadFile, "{}: expected a JSON object", path);
  if (!twice.empty()) raise(ErrorKind::kBadFile, "{}: key '{}' stands twice", path, twice);
  const Json* root = &document->root;
  return Config(std::move(document), root, "");
}

Config Config::completed(std::string_view defaults) const {
  auto document = std::make_shared<Document>(*document_);
  document->root = *node_;
  const Json missing = Json::parse(defaults.begin(), defaults.end());
  for (const auto& [key, value] : missing.items())
    if (!has(key)) document->root[key] = value;
  const Json* root = &document->root;
  return Config(std::move(document), root, prefix_);
}

std::string Config::where(std::string_view key) const {
  return fmt::format("{}: key '{}{}'", document_->path, prefix_, key);
}

const Json* Config::find(std::string_view key) const {
  ignore(key);
  const auto found = node_->find(key);
  return found == node_->end() || found->is_null() ? nullptr : &*found;
}

const Json& Config::at(std::string_view key, std::string_view expected) const {
  if (const Json* found = find(key)) return *found;
  raise(ErrorKind::kBadFile, "{} is missing (expected {})", where(key), expected);
}

bool Config::has(std::string_view key) const {
  const auto found = node_->find(key);
  return found != node_->end() && !found->is_null();
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : node_->items()) names.push_back(key);
  return names;
}

std::uint32_t Config::u32(std::string_view key) const {
  return whole(at(key, "a whole number"), where(key));
}

float Config::f32(std::string_view key) const {
  return real(at(key, "a number"), where(key));
}

bool Config::boolean(std::string_view key) const {
  const Json& json = at(key, "true or false");
  if (json.is_boolean()) return json.get<bool>();
  raise(ErrorKind::kBadFile, "{}: expected true or false, found {}", where(key), json.type_name());
}

std::string Config::string(std::string_view key) const {
  const Json& json = at(key, "a string");
  if (json.is_string()) return json.get<std::string>();
  raise(ErrorKind::kBadFile, "{}: expected a string, found {}", where(key), json.type_name());
}

std::vector<std::uint32_t> Config::u32s(std::string_view key) const {
  const Json& json = at(key, "a list of whole numbers");
  if (!json.is_array()) raise(ErrorKind::kBadFile, "{}: expected a list", where(key));
  std::vector<std::uint32_t> values;
  for (const Json& value : json) values.push_back(whole(value, where(key)));
  return values;
}

std::vector<float> Config::f32s(std::string_view key) const {
  const Json& json = at(key, "a list of numbers");
  if (!json.is_array()) raise(ErrorKind::kBadFile, "{}: expected a list", where(key));
  std::vector<float> values;
  for (const Json& value : json) values.push_back(real(value, where(key)));
  return values;
}

std::vector<std::string> Config::strings(std::string_view key) const {
  const Json& json = at(key, "a list of strings");
  std::vector<std::string> values;
  if (json.is_array())
    for (const Json& value : json)
      if (value.is_string()) values.push_back(value.get<std::string>());
  if (!json.is_array() || values.size() != json.size())
    raise(ErrorKind::kBadFile, "{}: expected a list of strings", where(key));
  return values;
}

Config Config::object(std::string_view key) const {
  const Json& json = at(key, "an object");
  if (!json.is_object())
    raise(ErrorKind::kBadFile, "{}: expected an object, found {}", where(key), json.type_name());
  return Config(document_, &json, fmt::format("{}{}.", prefix_, key));
}

std::vector<Config> Config::objects(std::string_view key) const {
  const Json& json = at(key, "a list of objects");
  std::vector<Config> values;
  if (json.is_array())
    for (const Json& value : json)
      if (value.is_object())
        values.push_back(Config(document_, &value, fmt::format("{}{}[].", prefix_, key)));
  if (!json.is_array() || values.size() != json.size())
    raise(ErrorKind::kBadFile, "{}: expected a list of objects", where(key));
  return values;
}

std::uint32_t Config::u32_or(std::string_view key, std::uint32_t fallback) const {
  return find(key) ? u32(key) : fallback;
}

float Config::f32_or(std::string_view key, float fallback) const {
  return find(key) ? f32(key) : fallback;
}

bool Config::boolean_or(std::string_view key, bool fallback) const {
  return find(key) ? boolean(key) : fallback;
}

std::string Config::string_or(std::string_view key, std::string_view fallback) const {
  return find(key) ? string(key) : std::string(fallback);
}

bool Config::is_object(std::string_view key) const {
  const auto found = node_->find(key);
  return found != node_->end() && found->is_object();
}

bool Config::is_number(std::string_view key) const {
  const auto found = node_->find(key);
  return found != node_->end() && found->is_number();
}

bool Config::is_list(std::string_view key) const {
  const auto found = node_->find(key);
  return found != node_->end() && found->is_array();
}

void Config::ignore(std::string_view key) const {
  document_->read.insert(fmt::format("{}{}", prefix_, key));
}

void Config::refuse_unread(std::string_view model) const {
  for (const auto& [key, value] : node_->items()) {
    if (switched_off(value) || document_->read.contains(prefix_ + key)) continue;
    raise(ErrorKind::kUnsupported,
          "{} is not known for the model type '{}'; it may change the result, so it is not "
          "ignored",
          where(key), model);
  }
}

}  // namespace lemma::weights::safetensors
