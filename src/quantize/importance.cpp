// SPDX-License-Identifier: Apache-2.0
#include "quantize/importance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/mapped_file.hpp"
#include "base/raise.hpp"
#include "weights/gguf/checkpoint.hpp"
#include "weights/gguf/writer.hpp"

namespace lemma::quantize {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

void check_entry(std::string_view name, const Importance::Entry& entry) {
  const auto sound = [](float x) { return std::isfinite(x) && x >= 0.f; };
  if (entry.cols == 0 || entry.counts.empty() ||
      entry.sums.size() != entry.counts.size() * entry.cols)
    base::raise(ErrorKind::kBadFile, "importance of '{}': {} sums for {} matrices of {} columns",
                name, entry.sums.size(), entry.counts.size(), entry.cols);
  if (!std::all_of(entry.sums.begin(), entry.sums.end(), sound) ||
      !std::all_of(entry.counts.begin(), entry.counts.end(), sound))
    base::raise(ErrorKind::kBadFile,
                "importance of '{}': expected finite numbers that are not negative", name);
}

std::vector<float> floats(const weights::TensorInfo& tensor) {
  if (tensor.format != weights::Format::kF32)
    base::raise(ErrorKind::kBadFile, "tensor '{}': expected F32, found {}", tensor.name,
                weights::traits(tensor.format).name);
  std::vector<float> values(tensor.elements());
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

Importance read_gguf(const std::filesystem::path& path) {
  const auto file = weights::gguf::open(path);
  const weights::Metadata& metadata = file->metadata();
  if (metadata.string_or("general.type", "") != "imatrix")
    base::raise(ErrorKind::kBadFile, "{}: expected general.type 'imatrix', found '{}'",
                path.string(), metadata.string_or("general.type", "nothing"));
  Importance result;
  if (metadata.has("imatrix.datasets")) result.texts = metadata.strings("imatrix.datasets");
  result.parts = metadata.u32_or("imatrix.chunk_count", 0);
  result.tokens_per_part = metadata.u32_or("imatrix.chunk_size", 0);
  for (const weights::TensorInfo& tensor : file->tensors()) {
    std::string_view name = tensor.name;
    if (!name.ends_with(kSums)) continue;
    name.remove_suffix(kSums.size());
    const weights::TensorInfo& counts = file->at(std::string(name) + std::string(kCounts));
    Importance::Entry entry{tensor.row_elements(), floats(tensor), floats(counts)};
    check_entry(name, entry);
    result.entries.emplace(name, std::move(entry));
  }
  return result;
}

/// The older form: i32 entries, then for each { i32 length, name, i32 calls, i32 n, f32 [n] }, then
/// i32 parts and { i32 length, name of the text }. What it holds is the sum of each call's mean.
class OldForm {
 public:
  OldForm(std::span<const std::byte> bytes, const std::filesystem::path& path)
      : bytes_(bytes), path_(path) {}

  Importance read() {
    Importance result;
    const std::uint32_t entries = number();
    for (std::uint32_t i = 0; i < entries; ++i) {
      std::string name = text();
      const std::uint32_t calls = number();
      const std::uint32_t n = number();
      if (bytes_.size() / sizeof(float) < n) bad("a list of numbers is longer than the file");
      Importance::Entry entry{n, std::vector<float>(n), {float(calls)}};
      std::memcpy(entry.sums.data(), take(n * sizeof(float)).data(), n * sizeof(float));
      check_entry(name, entry);
      if (!result.entries.emplace(std::move(name), std::move(entry)).second)
        bad("a name occurs twice");
    }
    if (!bytes_.empty()) result.parts = number();
    if (!bytes_.empty()) result.texts.push_back(text());
    return result;
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    base::raise(ErrorKind::kBadFile, "{}: no importance file: {}", path_.string(), what);
  }
  std::span<const std::byte> take(std::size_t n) {
    if (bytes_.size() < n) bad("it ends too early");
    const auto part = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return part;
  }
  std::uint32_t number() {
    std::int32_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    if (value < 0) bad("a count is negative");
    return static_cast<std::uint32_t>(value);
  }
  std::string text() {
    const auto part = take(number());
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  std::span<const std::byte> bytes_;
  const std::filesystem::path& path_;
};

/// The entry for a stack "blk.N.ffn_up_exps.weight" from entries "blk.N.ffn_up.E.weight".
std::optional<Importance::Entry> join_experts(const Importance& importance, std::string_view name,
                                              std::uint64_t cols, std::size_t matrices) {
  constexpr std::string_view kStack = "_exps.weight";
  if (!name.ends_with(kStack)) return {};
  name.remove_suffix(kStack.size());
  Importance::Entry joined{cols, std::vector<float>(cols * matrices), std::vector<float>(matrices)};
  bool any = false;
  for (std::size_t m = 0; m < matrices; ++m) {
    const std::string own = fmt::format("{}.{}.weight", name, m);
    const auto found = importance.entries.find(own);
    if (found == importance.entries.end()) continue;
    const Importance::Entry& entry = found->second;
    if (entry.cols != cols || entry.matrices() != 1)
      base::raise(ErrorKind::kUsage, "importance of '{}': expected {} columns for '{}{}', found {}",
                  own, cols, name, kStack, entry.cols);
    std::copy(entry.sums.begin(), entry.sums.end(),
              joined.sums.begin() + static_cast<std::ptrdiff_t>(m * cols));
    joined.counts[m] = entry.counts.front();
    any = true;
  }
  if (!any) return {};
  return joined;
}

}  // namespace

std::size_t Importance::Entry::unseen() const noexcept {
  return static_cast<std::size_t>(std::count(counts.begin(), counts.end(), 0.f));
}

std::vector<float> Importance::Entry::means(std::size_t m) const {
  if (matrices() == 1) m = 0;
  std::vector<float> result(cols, 1.f);
  if (counts[m] > 0.f)
    for (std::uint64_t c = 0; c < cols; ++c) result[c] = sums[m * cols + c] / counts[m];
  return result;
}

Importance Importance::read(const std::filesystem::path& path) {
  constexpr std::string_view kMagic = "GGUF";
  {
    const base::MappedFile file = base::MappedFile::open(path);
    const auto bytes = file.bytes();
    if (bytes.size() < kMagic.size() ||
        std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
      return OldForm(bytes, path).read();
  }
  return read_gguf(path);
}

void Importance::write(const std::filesystem::path& path) const {
  weights::gguf::Writer writer;
  writer.add("general.type", "imatrix");
  writer.add("imatrix.datasets", texts);
  writer.add("imatrix.chunk_count", parts);
  writer.add("imatrix.chunk_size", tokens_per_part);
  for (const auto& [name, entry] : entries) {
    writer.add_tensor(name + std::string(kSums), weights::Format::kF32,
                      {entry.matrices(), entry.cols}, std::as_bytes(std::span(entry.sums)));
    writer.add_tensor(name + std::string(kCounts), weights::Format::kF32, {entry.matrices(), 1},
                      std::as_bytes(std::span(entry.counts)));
  }
  writer.write(path);
}

std::vector<Importance::Unseen> Importance::unseen() const {
  std::vector<Unseen> result;
  for (const auto& [name, entry] : entries) {
    Unseen unseen{name, {}, entry.matrices()};
    for (std::size_t m = 0; m < entry.matrices(); ++m)
      if (entry.counts[m] == 0.f) unseen.experts.push_back(m);
    if (!unseen.experts.empty()) result.push_back(std::move(unseen));
  }
  return result;
}

void Importance::add(const Importance& other) {
  for (const auto& [name, entry] : other.entries) {
    const auto [own, added] = entries.emplace(name, entry);
    if (added) continue;
    Entry& sum = own->second;
    if (sum.cols != entry.cols || sum.matrices() != entry.matrices())
      base::raise(ErrorKind::kUsage,
                  "importance of '{}': expected {} matrices of {} columns, found {} of {}", name,
                  sum.matrices(), sum.cols, entry.matrices(), entry.cols);
    const auto add = [](std::vector<float>& to, const std::vector<float>& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    };
    add(sum.sums, entry.sums);
    add(sum.counts, entry.counts);
  }
  texts.insert(texts.end(), other.texts.begin(), other.texts.end());
  parts += other.parts;
  tokens_per_part = std::max(tokens_per_part, other.tokens_per_part);
}

std::optional<Importance::Entry> Importance::find(std::string_view name, std::uint64_t cols,
                                                  std::size_t matrices) const {
  const auto found = entries.find(name);
  if (found == entries.end()) return join_experts(*this, name, cols, matrices);
  Entry entry = found->second;
  if (entry.matrices() == 1 && entry.cols == cols * matrices) {
    // The older form does not say where one matrix of a stack ends, nor who was never seen.
    entry.cols = cols;
    const float count = entry.counts.front();
    entry.counts.assign(matrices, count);
    for (std::size_t m = 0; m < matrices; ++m) {
      const auto sums = std::span(entry.sums).subspan(m * cols, cols);
      if (std::all_of(sums.begin(), sums.end(), [](float x) { return x == 0.f; }))
        entry.counts[m] = 0.f;
    }
  }
  if (entry.cols != cols || (entry.matrices() != matrices && entry.matrices() != 1))
    base::raise(ErrorKind::kUsage,
                "importance of '{}': expected {} matrices of {} columns, found {} of {}", name,
                matrices, cols, entry.matrices(), entry.cols);
  return entry;
}

}  // namespace lemma::quantize
