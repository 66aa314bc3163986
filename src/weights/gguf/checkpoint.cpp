// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf/checkpoint.hpp"

#include <fmt/format.h>

#include <charconv>
#include <unordered_map>
#include <utility>

#include "base/mapped_file.hpp"
#include "base/raise.hpp"
#include "weights/gguf/reader.hpp"
#include "weights/gguf/types.hpp"

namespace lemma::weights::gguf {
namespace {

using base::raise;

constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitTensors = "split.tensors.count";

class GgufCheckpoint final : public Checkpoint {
 public:
  const Metadata& metadata() const noexcept override { return metadata_; }
  const std::vector<TensorInfo>& tensors() const noexcept override { return tensors_; }
  const std::vector<std::filesystem::path>& files() const noexcept override { return files_; }

  const TensorInfo* find(std::string_view name) const noexcept override {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
  }

  /// Maps and reads one more file; the first one gives the metadata. Returns its metadata.
  Metadata add(const std::filesystem::path& path) {
    base::MappedFile file = base::MappedFile::open(path);
    Contents contents = parse(file.bytes(), path.string());
    for (TensorInfo& tensor : contents.tensors) tensors_.push_back(std::move(tensor));
    if (files_.empty()) metadata_ = contents.metadata;
    mappings_.push_back(std::move(file));
    files_.push_back(path);
    return std::move(contents.metadata);
  }

  /// After the last file: the names' index. Its keys point into tensors_, which no longer grows.
  void index() {
    index_.reserve(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (index_.emplace(tensors_[i].name, i).second) continue;
      raise(ErrorKind::kBadFile, "{}: tensor '{}' appears in two parts", files_.front().string(),
            printable(tensors_[i].name));
    }
  }

 private:
  std::vector<base::MappedFile> mappings_;  // own the bytes that tensors_ points to
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;
  std::vector<std::filesystem::path> files_;
};

std::optional<std::uint32_t> parse_five_digits(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Checks that a part's own keys agree with its place in the set.
void check_part(const std::filesystem::path& path, const Metadata& metadata, const PartName& name) {
  try {
    const std::uint32_t count = metadata.u32(kSplitCount);
    if (count != name.count) {
      raise(ErrorKind::kBadFile, "key '{}': expected {} as in the file's name, found {}",
            kSplitCount, name.count, count);
    }
    const std::uint32_t number = metadata.u32(kSplitNumber);
    if (number != name.number - 1) {
      raise(ErrorKind::kBadFile,
            "key '{}': expected {} (counted from 0) by the file's name, found {}", kSplitNumber,
            name.number - 1, number);
    }
  } catch (const Error& error) {
    throw error.within(path.string());
  }
}

void check_tensor_count(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  if (!metadata.has(kSplitTensors)) return;
  const std::int64_t expected = metadata.i64(kSplitTensors);
  if (std::cmp_equal(expected, checkpoint.tensors().size())) return;
  raise(ErrorKind::kBadFile, "{}: key '{}': expected {} tensors in all parts, found {}",
        checkpoint.files().front().string(), kSplitTensors, expected, checkpoint.tensors().size());
}

/// A file whose name says nothing of parts must not say so inside either.
void check_single(const std::filesystem::path& path, const Metadata& metadata) {
  const std::uint32_t count = metadata.u32_or(kSplitCount, 1);
  if (count <= 1) return;
  raise(ErrorKind::kBadFile,
        "{}: key '{}' says that it is one of {} parts, whose names must end in "
        "-00001-of-{:05}.gguf for the others to be found",
        path.string(), kSplitCount, count, count);
}

}  // namespace

std::string PartName::of(std::uint32_t part) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, count);
}

std::optional<PartName> parse_part_name(const std::string& file_name) {
  //  -00001-of-00003.gguf, counted from the end
  constexpr std::size_t kSuffix = 20;
  if (file_name.size() <= kSuffix) return std::nullopt;
  const std::string_view suffix = std::string_view(file_name).substr(file_name.size() - kSuffix);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-" || suffix.substr(15) != ".gguf") {
    return std::nullopt;
  }
  const auto number = parse_five_digits(suffix.substr(1, 5));
  const auto count = parse_five_digits(suffix.substr(10, 5));
  if (!number || !count || *number == 0 || *number > *count) return std::nullopt;
  return PartName{file_name.substr(0, file_name.size() - kSuffix), *number, *count};
}

std::unique_ptr<const Checkpoint> open(const std::filesystem::path& path) {
  const auto name = parse_part_name(path.filename().string());
  if (name && name->number != 1) {
    raise(ErrorKind::kUsage, "{}: this is part {} of {}; name the first part, {}", path.string(),
          name->number, name->count, name->of(1));
  }
  auto checkpoint = std::make_unique<GgufCheckpoint>();
  const Metadata first = checkpoint->add(path);
  if (!name || (name->count == 1 && !first.has(kSplitCount))) {
    check_single(path, first);
  } else {
    check_part(path, first, *name);
    for (std::uint32_t part = 2; part <= name->count; ++part) {
      const auto sibling = path.parent_path() / name->of(part);
      std::error_code error;
      if (!std::filesystem::exists(sibling, error)) {
        raise(ErrorKind::kNotFound, "{}: part {} of {} is missing: expected the file {}",
              path.string(), part, name->count, sibling.string());
      }
      check_part(sibling, checkpoint->add(sibling), {name->stem, part, name->count});
    }
    check_tensor_count(*checkpoint);
  }
  checkpoint->index();
  return checkpoint;
}

}  // namespace lemma::weights::gguf
