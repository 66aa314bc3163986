// SPDX-License-Identifier: Apache-2.0
// Importance: how much each input of a matrix matters, as the mean of its squared activations over
// a calibration text. Kept as sums and counts, so that files can be joined. A stack of experts has
// one row of sums for each, and an expert that no token reached has a count of 0: it says nothing,
// and its weights are quantized as if all inputs mattered alike.
//
// The file is the GGUF form that the field uses for importance matrices (general.type "imatrix";
// for each weight NAME the tensors NAME.in_sum2 and NAME.counts); the older binary form is read
// too. A file is hostile until read() has returned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::quantize {

class Importance {
 public:
  struct Entry {
    std::uint64_t cols = 0;
    std::vector<float> sums;    ///< [matrices, cols]: of squares, not negative, finite
    std::vector<float> counts;  ///< [matrices]: rows seen; 0: none

    std::size_t matrices() const noexcept { return counts.size(); }
    std::size_t unseen() const noexcept;  ///< matrices with a count of 0
    /// The means of matrix `m`, [cols]; all 1 where it was never seen. A single matrix stands for
    /// all.
    std::vector<float> means(std::size_t m) const;
  };

  /// Throws kNotFound, kIo, kBadFile.
  static Importance read(const std::filesystem::path& path);
  /// Throws kIo.
  void write(const std::filesystem::path& path) const;
  /// Takes over what another collection saw. Throws kUsage where they do not speak of one model.
  void add(const Importance& other);

  struct Unseen {
    std::string tensor;
    std::vector<std::size_t> experts;  ///< ascending
    std::size_t of = 0;
  };
  /// Stacks with experts that no row reached.
  std::vector<Unseen> unseen() const;

  /// The entry for the weight `name`, a stack of `matrices` with rows of `cols` elements; nothing
  /// where there is none. An entry for a single matrix serves each of a stack, and entries of a
  /// stack's experts under names of their own ("blk.0.ffn_up.3.weight") are joined. Throws kUsage
  /// where a shape is another.
  std::optional<Entry> find(std::string_view name, std::uint64_t cols, std::size_t matrices) const;

  std::map<std::string, Entry, std::less<>> entries;
  std::vector<std::string> texts;     ///< names of what it was collected from
  std::uint32_t tokens_per_part = 0;  ///< and in how many parts
  std::uint32_t parts = 0;
};

}  // namespace lemma::quantize
