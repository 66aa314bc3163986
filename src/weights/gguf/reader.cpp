// SPDX-License-Identifier: Apache-2.0
#include "weights/gguf/reader.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/raise.hpp"
#include "weights/gguf/cursor.hpp"
#include "weights/gguf/types.hpp"

namespace lemma::weights::gguf {
namespace {

using base::raise;

constexpr std::string_view kAlignmentKey = "general.alignment";
// Data sections are aligned for mapping; nothing larger than the largest huge page makes sense.
constexpr std::uint32_t kMaxAlignment = 1u << 30;
// The fewest bytes of a key with its value, and of a tensor's entry with one dimension.
constexpr std::uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

struct Header {
  std::uint32_t version;
  std::uint64_t tensors;
  std::uint64_t pairs;
};

Header read_header(Cursor& cursor) {
  const auto magic = cursor.read<std::uint32_t>("the magic number");
  if (magic != kMagic) {
    raise(ErrorKind::kBadFile,
          "not a GGUF file: expected it to begin with 47 47 55 46 (\"GGUF\"), "
          "found {:02x} {:02x} {:02x} {:02x}",
          magic & 255, magic >> 8 & 255, magic >> 16 & 255, magic >> 24);
  }
  const auto version = cursor.read<std::uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0) {
    raise(ErrorKind::kUnsupported,
          "a big-endian GGUF file (version field {:#010x}); only "
          "little-endian files are read",
          version);
  }
  if (version != 2 && version != 3) {
    raise(version == 0 ? ErrorKind::kBadFile : ErrorKind::kUnsupported,
          "GGUF version {}; expected 2 or 3", version);
  }
  Header header{version, cursor.read<std::uint64_t>("the tensor count"),
                cursor.read<std::uint64_t>("the key count")};
  cursor.need_elements(header.pairs, kMinPairBytes, "the list of keys");
  cursor.need_elements(header.tensors, kMinTensorBytes, "the list of tensors");
  return header;
}

bool read_bool(Cursor& cursor, std::string_view what) {
  const auto byte = cursor.read<std::uint8_t>(what);
  if (byte > 1) raise(ErrorKind::kBadFile, "{}: expected a bool of 0 or 1, found {}", what, byte);
  return byte != 0;
}

template <typename T>
Value::Ints read_ints(Cursor& cursor, std::uint64_t count, std::string_view what) {
  Value::Ints out(count);
  for (auto& element : out) element = cursor.read<T>(what);
  return out;
}

template <typename T>
Value::Floats read_floats(Cursor& cursor, std::uint64_t count, std::string_view what) {
  Value::Floats out(count);
  for (auto& element : out) element = cursor.read<T>(what);
  return out;
}

/// Signed where every element fits, as Value promises.
decltype(Value::data) read_u64s(Cursor& cursor, std::uint64_t count, std::string_view what) {
  Value::Uints out(count);
  for (auto& element : out) element = cursor.read<std::uint64_t>(what);
  const bool fits = std::ranges::all_of(
      out, [](std::uint64_t element) { return std::in_range<std::int64_t>(element); });
  if (fits) return Value::Ints(out.begin(), out.end());
  return out;
}

Value read_array(Cursor& cursor, std::string_view what) {
  const auto number = cursor.read<std::uint32_t>(what);
  const ValueTypeInfo* type = value_type(number);
  if (!type) raise(ErrorKind::kBadFile, "{}: unknown element type {} of an array", what, number);
  const auto count = cursor.read<std::uint64_t>(what);
  cursor.need_elements(count, type->min_bytes, what);
  Value value;
  value.type_name = type->array_name;
  switch (type->type) {
    case ValueType::kU8:
      value.data = read_ints<std::uint8_t>(cursor, count, what);
      break;
    case ValueType::kI8:
      value.data = read_ints<std::int8_t>(cursor, count, what);
      break;
    case ValueType::kU16:
      value.data = read_ints<std::uint16_t>(cursor, count, what);
      break;
    case ValueType::kI16:
      value.data = read_ints<std::int16_t>(cursor, count, what);
      break;
    case ValueType::kU32:
      value.data = read_ints<std::uint32_t>(cursor, count, what);
      break;
    case ValueType::kI32:
      value.data = read_ints<std::int32_t>(cursor, count, what);
      break;
    case ValueType::kI64:
      value.data = read_ints<std::int64_t>(cursor, count, what);
      break;
    case ValueType::kU64:
      value.data = read_u64s(cursor, count, what);
      break;
    case ValueType::kF32:
      value.data = read_floats<float>(cursor, count, what);
      break;
    case ValueType::kF64:
      value.data = read_floats<double>(cursor, count, what);
      break;
    case ValueType::kBool: {
      Value::Bools out(count);
      for (std::uint64_t i = 0; i < count; ++i) out[i] = read_bool(cursor, what);
      value.data = std::move(out);
      break;
    }
    case ValueType::kString: {
      Value::Strings out;
      out.reserve(count);
      for (std::uint64_t i = 0; i < count; ++i) out.emplace_back(cursor.string(what));
      value.data = std::move(out);
      break;
    }
    case ValueType::kArray:
      raise(ErrorKind::kUnsupported,
            "{}: an array of arrays; no key that lemma reads has one, and its depth would be the "
            "file's choice",
            what);
  }
  return value;
}

Value read_value(Cursor& cursor, std::string_view what) {
  const auto number = cursor.read<std::uint32_t>(what);
  const ValueTypeInfo* type = value_type(number);
  if (!type) raise(ErrorKind::kBadFile, "{}: unknown value type {}", what, number);
  if (type->type == ValueType::kArray) return read_array(cursor, what);
  Value value;
  value.type_name = type->name;
  switch (type->type) {
    case ValueType::kU8:
      value.data = std::int64_t{cursor.read<std::uint8_t>(what)};
      break;
    case ValueType::kI8:
      value.data = std::int64_t{cursor.read<std::int8_t>(what)};
      break;
    case ValueType::kU16:
      value.data = std::int64_t{cursor.read<std::uint16_t>(what)};
      break;
    case ValueType::kI16:
      value.data = std::int64_t{cursor.read<std::int16_t>(what)};
      break;
    case ValueType::kU32:
      value.data = std::int64_t{cursor.read<std::uint32_t>(what)};
      break;
    case ValueType::kI32:
      value.data = std::int64_t{cursor.read<std::int32_t>(what)};
      break;
    case ValueType::kI64:
      value.data = cursor.read<std::int64_t>(what);
      break;
    case ValueType::kU64:
      value.data = cursor.read<std::uint64_t>(what);
      break;
    case ValueType::kF32:
      value.data = double{cursor.read<float>(what)};
      break;
    case ValueType::kF64:
      value.data = cursor.read<double>(what);
      break;
    case ValueType::kBool:
      value.data = read_bool(cursor, what);
      break;
    case ValueType::kString:
      value.data = std::string(cursor.string(what));
      break;
    case ValueType::kArray:
      break;  // handled above
  }
  return value;
}

Metadata read_metadata(Cursor& cursor, std::uint64_t count) {
  Metadata metadata;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view key =
        cursor.string(fmt::format("the name of key {} of {}", i + 1, count));
    if (key.empty()) raise(ErrorKind::kBadFile, "key {} of {} has an empty name", i + 1, count);
    if (key.size() > kMaxKeyLength) {
      raise(ErrorKind::kBadFile, "key {} of {}: expected a name of at most {} bytes, found {}",
            i + 1, count, kMaxKeyLength, key.size());
    }
    const std::string shown = printable(key);
    if (metadata.has(key)) raise(ErrorKind::kBadFile, "key '{}' appears twice", shown);
    metadata.add(std::string(key), read_value(cursor, fmt::format("key '{}'", shown)));
  }
  return metadata;
}

std::uint32_t read_alignment(const Metadata& metadata) {
  const std::uint32_t alignment = metadata.u32_or(kAlignmentKey, kDefaultAlignment);
  if (alignment == 0 || alignment % 8 != 0 || alignment > kMaxAlignment) {
    raise(ErrorKind::kBadFile, "key '{}': expected a multiple of 8 from 8 to {}, found {}",
          kAlignmentKey, kMaxAlignment, alignment);
  }
  return alignment;
}

/// One tensor as the list has it: its bytes still unresolved.
struct Entry {
  TensorInfo info;
  std::uint64_t offset = 0;  // from the start of the data section
  std::uint64_t size = 0;
};

/// Reads the sizes (innermost first) and returns the shape (outermost first). The number of
/// elements fits in 64 bits.
std::vector<std::uint64_t> read_shape(Cursor& cursor, std::string_view what) {
  const auto dimensions = cursor.read<std::uint32_t>(what);
  if (dimensions == 0 || dimensions > kMaxDimensions) {
    raise(ErrorKind::kBadFile, "{}: expected 1 to {} dimensions, found {}", what, kMaxDimensions,
          dimensions);
  }
  std::vector<std::uint64_t> shape(dimensions);
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto size = cursor.read<std::uint64_t>(what);
    if (size == 0) raise(ErrorKind::kBadFile, "{}: dimension {} has size 0", what, i);
    if (size > std::numeric_limits<std::uint64_t>::max() / elements) {
      raise(ErrorKind::kBadFile, "{}: more elements than 64 bits can count", what);
    }
    elements *= size;
    shape[dimensions - 1 - i] = size;
  }
  return shape;
}

std::string supported_types() {
  std::string names;
  for (const Format format : kFormats) {
    if (!names.empty()) names += format == kFormats.back() ? " and " : ", ";
    names += traits(format).name;
  }
  return names;
}

Format read_format(Cursor& cursor, std::string_view what) {
  const auto number = cursor.read<std::uint32_t>(what);
  const TensorType* type = tensor_type(number);
  if (!type) raise(ErrorKind::kBadFile, "{}: unknown type number {}", what, number);
  if (!type->format) {
    raise(ErrorKind::kUnsupported, "{}: type {} is not supported ({} are)", what, type->name,
          supported_types());
  }
  return *type->format;
}

std::uint64_t size_of(const TensorInfo& info, std::string_view what) {
  const FormatTraits& format = traits(info.format);
  if (info.row_elements() % format.block_elements != 0) {
    raise(ErrorKind::kBadFile, "{}: expected rows of a multiple of {} elements for {}, found {}",
          what, format.block_elements, format.name, info.row_elements());
  }
  const std::uint64_t blocks = info.elements() / format.block_elements;
  if (blocks > std::numeric_limits<std::uint64_t>::max() / format.block_bytes) {
    raise(ErrorKind::kBadFile, "{}: more bytes than 64 bits can count", what);
  }
  return blocks * format.block_bytes;
}

Entry read_entry(Cursor& cursor, std::uint64_t index, std::uint64_t count,
                 std::uint32_t alignment) {
  Entry entry;
  const std::string_view name =
      cursor.string(fmt::format("the name of tensor {} of {}", index + 1, count));
  if (name.empty()) raise(ErrorKind::kBadFile, "tensor {} of {} has no name", index + 1, count);
  const std::string what = fmt::format("tensor '{}'", printable(name));
  entry.info.name = name;
  entry.info.shape = read_shape(cursor, what);
  entry.info.format = read_format(cursor, what);
  entry.offset = cursor.read<std::uint64_t>(what);
  if (entry.offset % alignment != 0) {
    raise(ErrorKind::kBadFile, "{}: expected an offset that is a multiple of {}, found {}", what,
          alignment, entry.offset);
  }
  entry.size = size_of(entry.info, what);
  if (entry.size > std::numeric_limits<std::uint64_t>::max() - entry.offset) {
    raise(ErrorKind::kBadFile, "{}: its end, {} + {}, is beyond what 64 bits can count", what,
          entry.offset, entry.size);
  }
  return entry;
}

void refuse_duplicates(const std::vector<Entry>& entries) {
  std::unordered_set<std::string_view> seen;
  for (const Entry& entry : entries) {
    if (!seen.insert(entry.info.name).second) {
      raise(ErrorKind::kBadFile, "tensor '{}' appears twice", printable(entry.info.name));
    }
  }
}

void refuse_overlaps(const std::vector<Entry>& entries) {
  std::vector<const Entry*> sorted;
  sorted.reserve(entries.size());
  for (const Entry& entry : entries) sorted.push_back(&entry);
  std::ranges::sort(sorted, {}, [](const Entry* entry) { return entry->offset; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const Entry &before = *sorted[i - 1], &after = *sorted[i];
    if (before.offset + before.size <= after.offset) continue;
    raise(ErrorKind::kBadFile, "tensors '{}' (bytes {} to {}) and '{}' (from byte {}) overlap",
          printable(before.info.name), before.offset, before.offset + before.size,
          printable(after.info.name), after.offset);
  }
}

/// Points every tensor at its bytes. The file is short by what the farthest tensor lacks.
std::vector<TensorInfo> resolve(std::vector<Entry> entries, std::span<const std::byte> bytes,
                                std::uint64_t data_begin) {
  const std::uint64_t available = bytes.size() > data_begin ? bytes.size() - data_begin : 0;
  const Entry* farthest = nullptr;
  for (const Entry& entry : entries) {
    if (!farthest || entry.offset + entry.size > farthest->offset + farthest->size) {
      farthest = &entry;
    }
  }
  if (farthest && farthest->offset + farthest->size > available) {
    const std::uint64_t end = farthest->offset + farthest->size;
    raise(ErrorKind::kBadFile,
          "truncated: tensor '{}' ends at byte {} of the data section, but the file has only {} "
          "bytes of it, {} bytes missing",
          printable(farthest->info.name), end, available,
          end - available + (data_begin > bytes.size() ? data_begin - bytes.size() : 0));
  }
  std::vector<TensorInfo> tensors;
  tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.info.bytes = bytes.subspan(data_begin + entry.offset, entry.size);
    tensors.push_back(std::move(entry.info));
  }
  return tensors;
}

Contents parse_unnamed(std::span<const std::byte> bytes) {
  Cursor cursor(bytes);
  const Header header = read_header(cursor);
  Contents contents;
  contents.version = header.version;
  contents.metadata = read_metadata(cursor, header.pairs);
  const std::uint32_t alignment = read_alignment(contents.metadata);

  cursor.need_elements(header.tensors, kMinTensorBytes, "the list of tensors");
  std::vector<Entry> entries;
  entries.reserve(header.tensors);
  for (std::uint64_t i = 0; i < header.tensors; ++i) {
    entries.push_back(read_entry(cursor, i, header.tensors, alignment));
  }
  refuse_duplicates(entries);
  const std::uint64_t data_begin = (cursor.offset() + alignment - 1) / alignment * alignment;
  refuse_overlaps(entries);
  contents.tensors = resolve(std::move(entries), bytes, data_begin);
  return contents;
}

}  // namespace

Contents parse(std::span<const std::byte> bytes, std::string_view name) {
  try {
    return parse_unnamed(bytes);
  } catch (const Error& error) {
    throw error.within(std::string(name));
  }
}

}  // namespace lemma::weights::gguf
