// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/header.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/raise.hpp"

namespace lemma::weights {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
/// The largest header that the format's own library accepts.
constexpr std::uint64_t kMaxHeader = 100'000'000;

struct Dtype {
  std::string_view name;
  std::size_t bytes;
};
constexpr Dtype kDtypes[] = {{"F64", 8},  {"F32", 4},     {"F16", 2},     {"BF16", 2},
                             {"I64", 8},  {"I32", 4},     {"I16", 2},     {"I8", 1},
                             {"U64", 8},  {"U32", 4},     {"U16", 2},     {"U8", 1},
                             {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};

std::uint64_t read_length(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kLengthBytes)
    base::raise(ErrorKind::kBadFile, "{}: {} bytes are no safetensors file", path, file.size());
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  const std::uint64_t room = std::min<std::uint64_t>(file.size() - kLengthBytes, kMaxHeader);
  if (length > room)
    base::raise(ErrorKind::kBadFile,
                "{}: the safetensors header is said to take {} bytes, but at most {} can be there",
                path, length, room);
  return length;
}

/// A list of whole numbers >= 0.
std::vector<std::uint64_t> numbers(const Json& tensor, const char* key, const std::string& what) {
  const auto found = tensor.find(key);
  if (found == tensor.end() || !found->is_array())
    base::raise(ErrorKind::kBadFile, "{}: expected a list '{}'", what, key);
  std::vector<std::uint64_t> values;
  for (const Json& value : *found) {
    if (!value.is_number_unsigned())
      base::raise(ErrorKind::kBadFile, "{}: {}: expected whole numbers, found {}", what, key,
                  value.type_name());
    values.push_back(value.get<std::uint64_t>());
  }
  return values;
}

/// The bytes that `shape` takes, or more than `limit` where it is too large.
std::uint64_t bytes_of(const std::vector<std::uint64_t>& shape, std::uint64_t element,
                       std::uint64_t limit) {
  std::uint64_t bytes = element;
  for (const std::uint64_t n : shape) {
    if (n == 0) return 0;
    bytes = bytes > limit / n ? limit + 1 : bytes * n;
  }
  return bytes;
}

SafetensorsEntry parse_entry(const std::string& name, const Json& tensor, std::uint64_t base,
                             std::uint64_t data_bytes, const std::string& path) {
  const std::string what = fmt::format("{}: tensor '{}'", path, name);
  if (!tensor.is_object()) base::raise(ErrorKind::kBadFile, "{}: expected an object", what);
  SafetensorsEntry entry{.name = name};
  const auto dtype = tensor.find("dtype");
  if (dtype == tensor.end() || !dtype->is_string())
    base::raise(ErrorKind::kBadFile, "{}: expected a string 'dtype'", what);
  entry.dtype = dtype->get<std::string>();
  const std::size_t element = safetensors_element_bytes(entry.dtype);
  if (element == 0)
    base::raise(ErrorKind::kBadFile, "{}: dtype '{}' is not known", what, entry.dtype);
  entry.shape = numbers(tensor, "shape", what);
  const auto offsets = numbers(tensor, "data_offsets", what);
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes)
    base::raise(ErrorKind::kBadFile, "{}: data_offsets lie outside the {} bytes of data", what,
                data_bytes);
  const std::uint64_t bytes = bytes_of(entry.shape, element, data_bytes);
  if (bytes != offsets[1] - offsets[0])
    base::raise(ErrorKind::kBadFile, "{}: its shape takes {} bytes, its data_offsets give {}", what,
                bytes, offsets[1] - offsets[0]);
  entry.begin = base + offsets[0];
  entry.end = base + offsets[1];
  return entry;
}

void parse_metadata(const Json& object, const std::string& path, SafetensorsHeader& header) {
  if (!object.is_object())
    base::raise(ErrorKind::kBadFile, "{}: __metadata__: expected an object", path);
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string())
      base::raise(ErrorKind::kBadFile, "{}: __metadata__ '{}': expected a string", path, key);
    header.metadata.emplace_back(key, value.get<std::string>());
  }
}

/// Sorts, and refuses overlaps, holes and bytes behind the last tensor.
void check_cover(SafetensorsHeader& header, std::uint64_t base, std::uint64_t end,
                 const std::string& path) {
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = base;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != at)
      base::raise(ErrorKind::kBadFile, "{}: tensor '{}' begins at byte {}, expected {}", path,
                  entry.name, entry.begin, at);
    at = entry.end;
  }
  if (at != end)
    base::raise(ErrorKind::kBadFile, "{}: {} bytes belong to no tensor", path, end - at);
}

}  // namespace

std::size_t safetensors_element_bytes(std::string_view dtype) noexcept {
  for (const Dtype& known : kDtypes)
    if (known.name == dtype) return known.bytes;
  return 0;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file,
                                    const std::filesystem::path& path) {
  const std::string name = path.string();
  const std::uint64_t length = read_length(file, name);
  const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  // A name that stands twice is kept from hiding the first one behind the last.
  std::set<std::string> seen;
  bool twice = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key)
      twice |= !seen.insert(value.get<std::string>()).second;
    return true;
  };
  const Json json = Json::parse(text, text + length, watch, /*allow_exceptions=*/false);
  if (!json.is_object())
    base::raise(ErrorKind::kBadFile, "{}: the safetensors header is no JSON object", name);
  if (twice)
    base::raise(ErrorKind::kBadFile, "{}: a tensor stands twice in the safetensors header", name);
  const std::uint64_t base = kLengthBytes + length;
  SafetensorsHeader header;
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__")
      parse_metadata(value, name, header);
    else
      header.entries.push_back(parse_entry(key, value, base, file.size() - base, name));
  }
  check_cover(header, base, file.size(), name);
  return header;
}

}  // namespace lemma::weights
