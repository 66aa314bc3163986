// SPDX-License-Identifier: Apache-2.0
// The one file of the engine that sees the JSON library.
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/raise.hpp"
#include "text/jinja/json.hpp"

namespace lemma::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

/// Builds values from the parser's events. Nothing here recurses on the document's depth.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(bool from_input) : from_input_(from_input) {}

  Value take() { return std::move(root_); }

  bool null() override { return put(Value()); }
  bool boolean(bool value) override { return put(Value::boolean(value)); }
  bool number_integer(std::int64_t value) override { return put(Value::integer(value)); }
  bool number_unsigned(std::uint64_t value) override {
    if (value > INT64_MAX) refuse_integer();
    return put(Value::integer(static_cast<std::int64_t>(value)));
  }
  bool number_float(double value, const std::string& spelling) override {
    if (spelling.find_first_of(".eE") == std::string::npos) refuse_integer();
    return put(Value::real(value));
  }
  bool string(std::string& value) override {
    return put(Value::string(Text::of(std::move(value), from_input_)));
  }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool key(std::string& key) override {
    levels_.back().key = Value::string(Text::of(std::move(key), from_input_));
    return true;
  }
  bool end_object() override {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return put(Value::dict(std::move(level.dict)));
  }
  bool end_array() override {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return put(Value::list(std::move(level.items)));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    base::raise(ErrorKind::kUsage, "not valid JSON at byte {}: {}", position, error.what());
  }

 private:
  struct Level {
    std::shared_ptr<Dict> dict;  // or an array:
    std::vector<Value> items;
    Value key;
  };

  [[noreturn]] static void refuse_integer() {
    base::raise(ErrorKind::kUsage, "the JSON holds an integer outside 64 bits");
  }

  bool open(bool object) {
    if (levels_.size() + 1 >= kMaxNesting)
      base::raise(ErrorKind::kUsage, "the JSON nests more than {} deep", kMaxNesting - 1);
    levels_.push_back({object ? std::make_shared<Dict>() : nullptr, {}, {}});
    return true;
  }

  bool put(Value value) {
    if (levels_.empty())
      root_ = std::move(value);
    else if (Level& level = levels_.back(); level.dict)
      level.dict->set(std::move(level.key), std::move(value));
    else
      level.items.push_back(std::move(value));
    return true;
  }

  bool from_input_;
  std::vector<Level> levels_;
  Value root_;
};

}  // namespace

Value read_json(std::string_view text, bool from_input) {
  Builder builder(from_input);
  Json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace lemma::text::jinja
