// SPDX-License-Identifier: Apache-2.0
#include "seeded_weights.hpp"

#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "algorithm/sampling.hpp"
#include "base/check.hpp"

namespace lemma::test {
namespace {

using weights::Format;

/// FNV-1a, so that a tensor's seed is its name.
std::uint64_t seed_of(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace

weights::WeightRef SeededWeights::matrix(const std::string& name, std::uint64_t rows,
                                         std::uint64_t cols, float scale) {
  const float high = std::sqrt(3.f / static_cast<float>(cols)) * scale;
  return uniform(name, {rows, cols}, matrices_, -high, high);
}

weights::WeightRef SeededWeights::precise(const std::string& name, std::uint64_t rows,
                                          std::uint64_t cols, float scale) {
  const float high = std::sqrt(3.f / static_cast<float>(cols)) * scale;
  return uniform(name, {rows, cols}, Format::kF32, -high, high);
}

weights::WeightRef SeededWeights::vector(const std::string& name, std::uint64_t size, float low,
                                         float high) {
  return uniform(name, {size}, Format::kF32, low, high);
}

weights::WeightRef SeededWeights::table(const std::string& name, std::uint64_t rows,
                                        std::uint32_t chosen, std::uint32_t bound) {
  algorithm::Random random(seed_of(name));
  std::vector<std::int32_t> entries;
  std::vector<std::int32_t> all(bound);
  std::iota(all.begin(), all.end(), 0);
  for (std::uint64_t row = 0; row < rows; ++row)
    for (std::uint32_t i = 0; i < chosen; ++i) {
      std::swap(all[i], all[i + random.next() % (bound - i)]);
      entries.push_back(all[i]);
    }
  std::vector<std::byte> bytes(entries.size() * sizeof(std::int32_t));
  std::memcpy(bytes.data(), entries.data(), bytes.size());
  return stored(name, {rows, chosen}, Format::kI32, std::move(bytes));
}

const weights::TensorInfo* SeededWeights::find(std::string_view name) const noexcept {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

weights::WeightRef SeededWeights::uniform(const std::string& name, std::vector<std::uint64_t> shape,
                                          Format format, float low, float high) {
  algorithm::Random random(seed_of(name));
  std::uint64_t elements = 1;
  for (const std::uint64_t n : shape) elements *= n;
  std::vector<float> values(elements);
  for (float& value : values) value = low + (high - low) * random.uniform();
  const std::uint64_t rows = elements / shape.back();
  std::vector<std::byte> bytes(rows * weights::row_bytes(format, shape.back()));
  weights::traits(format).quantize(values, bytes.data());
  return stored(name, std::move(shape), format, std::move(bytes));
}

weights::WeightRef SeededWeights::stored(const std::string& name, std::vector<std::uint64_t> shape,
                                         Format format, std::vector<std::byte> bytes) {
  bytes_.push_back(std::move(bytes));
  LEMMA_CHECK(index_.emplace(name, tensors_.size()).second);
  tensors_.push_back(
      {.name = name, .format = format, .shape = std::move(shape), .bytes = bytes_.back()});
  return {.tensor = name};
}

}  // namespace lemma::test
