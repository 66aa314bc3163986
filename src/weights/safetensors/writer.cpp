// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors/writer.hpp"

#include <unistd.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/check.hpp"
#include "base/raise.hpp"
#include "weights/safetensors/header.hpp"

namespace lemma::weights {

static_assert(std::endian::native == std::endian::little, "bytes are written as they lie here");

SafetensorsWriter::SafetensorsWriter(
    std::filesystem::path path, std::vector<SafetensorsTensor> tensors,
    const std::vector<std::pair<std::string, std::string>>& metadata)
    : path_(std::move(path)), partial_(path_.string() + ".partial-" + std::to_string(::getpid())) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : metadata) json["__metadata__"][key] = value;
  std::uint64_t at = 0;
  offsets_.push_back(at);
  for (const SafetensorsTensor& tensor : tensors) {
    std::uint64_t bytes = safetensors_element_bytes(tensor.dtype);
    LEMMA_CHECK(bytes > 0);
    for (const std::uint64_t n : tensor.shape) bytes *= n;
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
    offsets_.push_back(at);
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data are aligned
  const std::uint64_t length = header.size();
  for (std::uint64_t& offset : offsets_) offset += sizeof length + length;

  file_.open(partial_, std::ios::binary | std::ios::trunc);
  check();
  file_.write(reinterpret_cast<const char*>(&length), sizeof length);
  file_.write(header.data(), static_cast<std::streamsize>(length));
  check();
}

SafetensorsWriter::~SafetensorsWriter() {
  std::error_code ignored;
  if (!published_) std::filesystem::remove(partial_, ignored);
}

void SafetensorsWriter::write(std::size_t index, std::uint64_t offset,
                              std::span<const std::byte> bytes) {
  LEMMA_CHECK(index + 1 < offsets_.size());
  LEMMA_CHECK(offset + bytes.size() <= offsets_[index + 1] - offsets_[index]);
  file_.seekp(static_cast<std::streamoff>(offsets_[index] + offset));
  file_.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  written_ += bytes.size();
}

void SafetensorsWriter::publish() {
  if (written_ != offsets_.back() - offsets_.front())
    base::raise(ErrorKind::kInternal, "{}: {} bytes of tensors were written, expected {}",
                path_.string(), written_, offsets_.back() - offsets_.front());
  file_.close();
  check();
  std::error_code error;
  std::filesystem::rename(partial_, path_, error);
  if (error) base::raise(ErrorKind::kIo, "{}: {}", path_.string(), error.message());
  published_ = true;
}

void SafetensorsWriter::check() const {
  if (!file_) base::raise(ErrorKind::kIo, "{}: cannot be written", partial_.string());
}

}  // namespace lemma::weights
