// SPDX-License-Identifier: Apache-2.0
// Field failure A6: hyper-parameters that no program could be. Each is refused by the key's name
// in a file of every family, before a byte of any tensor is read: the checkpoints here have none.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lemma/error.hpp"
#include "model/arch/arch.hpp"
#include "model/arch/tiny_checkpoint.hpp"
#include "test_data.hpp"

namespace lemma::model::arch {
namespace {

using weights::Value;

/// One golden model of this repository, its keys free to be spoilt.
class Family {
 public:
  explicit Family(const std::filesystem::path& path) : file_(weights::open_checkpoint(path)) {
    prefix_ = file_->metadata().string("general.architecture") + ".";
  }

  const weights::Metadata& keys() const { return file_->metadata(); }
  std::string key(const std::string& suffix) const { return prefix_ + suffix; }
  const std::string& prefix() const { return prefix_; }
  bool has(const std::string& suffix) const { return keys().has(key(suffix)); }

  /// The first number of a key that is a number or a list.
  std::int64_t number(const std::string& suffix) const {
    const Value& value = *keys().find(key(suffix));
    if (const auto* list = std::get_if<Value::Ints>(&value.data))
      return *std::ranges::max_element(*list);
    return std::get<std::int64_t>(value.data);
  }

  TinyCheckpoint copy() const { return TinyCheckpoint(*file_); }

  /// Why planning fails with `key` set to `value`.
  template <typename T>
  std::string refusal(const std::string& key, T value) const {
    TinyCheckpoint spoilt(*file_);
    spoilt.set(key, std::move(value));
    try {
      make_plan(spoilt, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "planned";
  }

  template <typename T>
  void expect_refused(const std::string& suffix, T value) const {
    const std::string message = refusal(key(suffix), std::move(value));
    EXPECT_NE(message.find("'" + key(suffix) + "'"), std::string::npos)
        << suffix << ": " << message;
  }

 private:
  std::unique_ptr<const weights::Checkpoint> file_;
  std::string prefix_;
};

class HostileKeys : public ::testing::TestWithParam<std::string> {
 protected:
  TinyCheckpoint copy() const { return family.copy(); }
  const Family family{test::source_dir() / "tests/goldens" / GetParam() / "model.gguf"};
};

std::vector<std::string> own_goldens() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_dir() / "tests" / "goldens"))
    if (std::filesystem::exists(entry.path() / "model.gguf"))
      names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Of, HostileKeys, ::testing::ValuesIn(own_goldens()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST_P(HostileKeys, CountLayersThatTheFileDoesNotHave) {
  for (const std::int64_t count : {0, 513, 100000, -1}) family.expect_refused("block_count", count);
}

TEST_P(HostileKeys, CountNoHeadsOrMoreKvHeadsThanHeads) {
  const std::int64_t heads = family.number("attention.head_count");
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{-4}, std::int64_t{1} << 31})
    family.expect_refused("attention.head_count", count);
  family.expect_refused("attention.head_count_kv", heads * 2);
}

TEST_P(HostileKeys, UseMoreExpertsThanThereAre) {
  if (!family.has("expert_count")) return;
  const std::int64_t experts = family.number("expert_count");
  for (const std::int64_t used : {experts + 1, std::int64_t{0}, std::int64_t{1} << 31})
    family.expect_refused("expert_used_count", used);
}

TEST_P(HostileKeys, TurnMoreDimsThanAHeadHas) {
  if (!family.has("rope.dimension_count")) return;
  for (const std::int64_t dims : {std::int64_t{4096}, std::int64_t{3}, std::int64_t{1} << 31})
    family.expect_refused("rope.dimension_count", dims);
}

TEST_P(HostileKeys, ListFewerEntriesThanLayers) {
  const std::size_t layers = static_cast<std::size_t>(family.number("block_count"));
  const auto shortened = [&](const std::string& key, auto list) {
    if (list.size() < layers || layers < 2) return;
    list.resize(layers - 1);
    const std::string message = family.refusal(key, list);
    EXPECT_NE(message.find("'" + key + "'"), std::string::npos) << key << ": " << message;
  };
  for (const auto& [key, value] : family.keys().pairs()) {
    if (!key.starts_with(family.prefix()) || key.ends_with("dimension_sections")) continue;
    if (const auto* numbers = std::get_if<Value::Ints>(&value.data)) shortened(key, *numbers);
    if (const auto* reals = std::get_if<Value::Floats>(&value.data)) shortened(key, *reals);
    if (const auto* flags = std::get_if<std::vector<bool>>(&value.data)) shortened(key, *flags);
  }
}

// A number where it has no business: every numeric key of every family, at values that overflow a
// product, a shape or a sign. An error or a plan; nothing is sized by the number.
TEST_P(HostileKeys, AreAnErrorOrAPlanAtAnyValue) {
  for (const auto& [key, value] : family.keys().pairs()) {
    if (!key.starts_with(family.prefix())) continue;
    if (std::holds_alternative<std::int64_t>(value.data)) {
      for (const std::int64_t number : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1},
                                        std::int64_t{0xffffffff}, std::int64_t{1} << 40, INT64_MAX,
                                        INT64_MIN, std::int64_t{0x7fffffff}, std::int64_t{65536}})
        EXPECT_FALSE(family.refusal(key, number).empty());
    } else if (std::holds_alternative<double>(value.data)) {
      for (const double number : {0.0, -1.0, 1e308, -1e308, 1e-300, double(NAN), double(INFINITY)})
        EXPECT_FALSE(family.refusal(key, number).empty());
    }
  }
}

// Several at once, so that one wrong number cannot hide behind the check of another. LEMMA_DEEP=1
// tries twenty times as many.
TEST_P(HostileKeys, InCompanyAreAnErrorOrAPlan) {
  constexpr std::array<std::int64_t, 14> kNumbers = {0, 1,  2,   3,    4,       5,          7,
                                                     8, 16, 255, 4096, 1 << 20, 0x7fffffff, -1};
  std::vector<std::pair<std::string, Value>> spoilable;
  for (const auto& [key, value] : family.keys().pairs())
    if (key.starts_with(family.prefix()) && !std::holds_alternative<std::string>(value.data))
      spoilable.emplace_back(key, value);
  std::mt19937 random{std::random_device::result_type{20261129}};
  const auto number = [&] { return kNumbers[random() % kNumbers.size()]; };
  const char* const deep = std::getenv("LEMMA_DEEP");
  const int tries = deep && std::string_view(deep) == "1" ? 4000 : 200;
  for (int i = 0; i < tries; ++i) {
    TinyCheckpoint spoilt = copy();
    for (std::size_t n = 2 + random() % 3; n > 0; --n) {
      const auto& [key, value] = spoilable[random() % spoilable.size()];
      if (const auto* list = std::get_if<Value::Ints>(&value.data)) {
        Value::Ints changed = *list;
        if (!changed.empty()) changed[random() % changed.size()] = number();
        spoilt.set(key, std::move(changed));
      } else if (std::holds_alternative<std::int64_t>(value.data)) {
        spoilt.set(key, number());
      } else if (std::holds_alternative<double>(value.data)) {
        spoilt.set(key, static_cast<double>(number()) / 3);
      } else if (random() % 2) {
        spoilt.remove(key);
      }
    }
    try {
      make_plan(spoilt, {});
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::kInternal) << error.what();
    }
  }
}

}  // namespace
}  // namespace lemma::model::arch
