// SPDX-License-Identifier: Apache-2.0
#include "weights/view.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "weights/expect_error.hpp"
#include "weights/gguf/reader.hpp"
#include "weights/gguf/writer.hpp"

namespace lemma::weights {
namespace {

/// A checkpoint that was never a file.
class MemoryCheckpoint final : public Checkpoint {
 public:
  explicit MemoryCheckpoint(std::vector<std::byte> bytes)
      : bytes_(std::move(bytes)), contents_(gguf::parse(bytes_, "memory")) {}
  const Metadata& metadata() const noexcept override { return contents_.metadata; }
  const std::vector<TensorInfo>& tensors() const noexcept override { return contents_.tensors; }
  const std::vector<std::filesystem::path>& files() const noexcept override { return files_; }
  const TensorInfo* find(std::string_view name) const noexcept override {
    for (const TensorInfo& tensor : contents_.tensors) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }

 private:
  std::vector<std::byte> bytes_;
  gguf::Contents contents_;
  std::vector<std::filesystem::path> files_;
};

/// Tensors whose elements count 0, 1, 2, ... in each format that holds such numbers exactly.
const MemoryCheckpoint& checkpoint() {
  static const MemoryCheckpoint instance = [] {
    gguf::Writer writer;
    const auto add = [&writer](const char* name, Format format, std::vector<std::uint64_t> shape) {
      std::uint64_t n = 1;
      for (const std::uint64_t size : shape) n *= size;
      writer.add_tensor(name, format, std::move(shape), [format, n] {
        std::vector<float> values(n);
        std::iota(values.begin(), values.end(), 0.f);
        std::vector<std::byte> bytes(row_bytes(format, n));
        traits(format).quantize(values, bytes.data());
        return bytes;
      });
    };
    add("f32", Format::kF32, {6, 4});
    add("f16", Format::kF16, {6, 4});
    add("bf16", Format::kBF16, {6, 4});
    add("q8", Format::kQ8_0, {6, 32});
    add("q8_pairs", Format::kQ8_0, {3, 64});
    add("vector", Format::kF32, {5});
    add("column", Format::kF32, {5, 1});
    add("experts", Format::kF32, {2, 3, 4});
    add("q8_vector", Format::kQ8_0, {64});
    return MemoryCheckpoint(writer.bytes());
  }();
  return instance;
}

std::vector<float> values(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols) {
  return to_f32(bind(checkpoint(), ref, rows, cols));
}

TEST(Views, OfTheWholePointIntoTheCheckpoint) {
  const Matrix matrix = bind(checkpoint(), {"f32"}, 6, 4);
  EXPECT_EQ(matrix.bytes, checkpoint().at("f32").bytes.data());
  EXPECT_EQ(matrix.owner, nullptr);
  EXPECT_EQ(matrix.name, "f32");
  EXPECT_EQ(matrix.size_bytes(), 96u);
  EXPECT_EQ(to_f32(matrix)[23], 23.f);
}

TEST(Views, OfAStackOfExpertsFlattenItsRows) {
  EXPECT_EQ(bind(checkpoint(), {"experts"}, 6, 4).rows, 6u);
}

TEST(Views, OfAVectorHaveOneRow) {
  const std::vector<float> expected = {0, 1, 2, 3, 4};
  EXPECT_EQ(values({"vector"}, 1, 5), expected);
  EXPECT_EQ(values({"column"}, 1, 5), expected);
}

TEST(Views, OfRowsPointIntoTheCheckpoint) {
  const Matrix matrix = bind(checkpoint(), {"f32", View::rows(2, 4)}, 2, 4);
  EXPECT_EQ(matrix.owner, nullptr);
  EXPECT_EQ(to_f32(matrix), (std::vector<float>{8, 9, 10, 11, 12, 13, 14, 15}));
}

TEST(Views, OfRowsWorkOnBlocks) {
  const Matrix matrix = bind(checkpoint(), {"q8", View::rows(5, 6)}, 1, 32);
  EXPECT_EQ(matrix.bytes, checkpoint().at("q8").bytes.data() + 5 * 34);
}

TEST(Views, OfStridedRowsGatherEachGroup) {
  EXPECT_EQ(values({"f32", View::strided_rows(3, 1, 2)}, 2, 4),
            (std::vector<float>{4, 5, 6, 7, 16, 17, 18, 19}));
  const Matrix blocks = bind(checkpoint(), {"q8", View::strided_rows(2, 1, 2)}, 3, 32);
  EXPECT_NE(blocks.owner, nullptr);
  const auto all = values({"q8"}, 6, 32), odd = to_f32(blocks);
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t c = 0; c < 32; ++c) EXPECT_EQ(odd[r * 32 + c], all[(2 * r + 1) * 32 + c]);
  }
}

TEST(Views, OfColumnsTakeAPartOfEveryRow) {
  EXPECT_EQ(values({"f32", View::columns(1, 3)}, 6, 2),
            (std::vector<float>{1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22}));
  EXPECT_THROW(bind(checkpoint(), {"f32", View::columns(2, 5)}, 6, 3), Error);
}

TEST(Views, OfColumnsKeepBlocksWhole) {
  const auto all = values({"q8_pairs"}, 3, 64);
  const auto second = values({"q8_pairs", View::columns(32, 64)}, 3, 32);
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t c = 0; c < 32; ++c) EXPECT_EQ(second[r * 32 + c], all[r * 64 + 32 + c]);
  }
  EXPECT_THROW(bind(checkpoint(), {"q8_pairs", View::columns(0, 16)}, 3, 16), Error);
}

TEST(Views, OfStridedRowsCopyNothingWhereTheyAreContiguous) {
  EXPECT_EQ(bind(checkpoint(), {"f32", View::strided_rows(6, 2, 3)}, 1, 4).owner, nullptr);
  EXPECT_EQ(bind(checkpoint(), {"f32", View::strided_rows(3, 0, 3)}, 6, 4).owner, nullptr);
}

TEST(Views, OfElementsCutAVector) {
  const Matrix matrix = bind(checkpoint(), {"vector", View::elements(1, 4)}, 1, 3);
  EXPECT_EQ(matrix.owner, nullptr);
  EXPECT_EQ(to_f32(matrix), (std::vector<float>{1, 2, 3}));
}

TEST(Views, OfATransposeSwapRowsAndColumns) {
  for (const char* name : {"f32", "f16", "bf16"}) {
    const auto out = values({name, View::transpose()}, 4, 6);
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t c = 0; c < 6; ++c) {
        EXPECT_EQ(out[r * 6 + c], static_cast<float>(c * 4 + r)) << name;
      }
    }
  }
}

TEST(Views, OfATransposeStayWithinEachMatrixOfAStack) {
  const auto out = values({"experts", View::transpose()}, 8, 3);
  EXPECT_EQ(out[1], 4.f);           // expert 0, [0][1] = its [1][0]
  EXPECT_EQ(out[4 * 3 + 1], 16.f);  // expert 1
}

TEST(Views, OfChangedValuesAreF32) {
  for (const char* name : {"f32", "f16", "bf16"}) {
    const Matrix plus = bind(checkpoint(), {name, View::add_one()}, 6, 4);
    EXPECT_EQ(plus.format, Format::kF32);
    EXPECT_EQ(to_f32(plus)[3], 4.f);
    EXPECT_EQ(values({name, View::neg_exp()}, 6, 4)[2], -std::exp(2.f));
  }
}

TEST(Views, OutliveTheirCopies) {
  Matrix copy;
  {
    const Matrix original = bind(checkpoint(), {"f32", View::transpose()}, 4, 6);
    copy = original;
  }
  EXPECT_EQ(to_f32(copy)[1], 4.f);
}

TEST(Views, ThatABlockFormatCannotExpressAreRefused) {
  expect_error(ErrorKind::kUnsupported,
               "tensor 'q8': a transpose needs F32, F16 or BF16, found Q8_0", [] {
                 bind(checkpoint(), {"q8", View::transpose()}, 32, 6);
               });
  expect_error(ErrorKind::kUnsupported, "tensor 'q8': w + 1 needs", [] {
    bind(checkpoint(), {"q8", View::add_one()}, 6, 32);
  });
  expect_error(ErrorKind::kUnsupported, "tensor 'q8': -exp(w) needs", [] {
    bind(checkpoint(), {"q8", View::neg_exp()}, 6, 32);
  });
  expect_error(ErrorKind::kUnsupported, "tensor 'q8_vector': a part of a vector needs", [] {
    bind(checkpoint(), {"q8_vector", View::elements(0, 32)}, 1, 32);
  });
}

TEST(Views, OutOfRangeAreRefusedNamingTheShape) {
  expect_error(ErrorKind::kBadFile,
               "tensor 'f32' of shape [6, 4]: expected a part of the 6 rows of "
               "the tensor, found [4, 7)",
               [] {
                 bind(checkpoint(), {"f32", View::rows(4, 7)}, 3, 4);
               });
  expect_error(ErrorKind::kBadFile, "found [3, 3)", [] {
    bind(checkpoint(), {"f32", View::rows(3, 3)}, 0, 4);
  });
  expect_error(ErrorKind::kBadFile, "expected a part of the 3 rows of a group, found [2, 4)", [] {
    bind(checkpoint(), {"f32", View::strided_rows(3, 2, 4)}, 4, 4);
  });
  expect_error(ErrorKind::kBadFile, "expected groups of 4 rows, found 6 rows", [] {
    bind(checkpoint(), {"f32", View::strided_rows(4, 0, 2)}, 3, 4);
  });
  expect_error(ErrorKind::kBadFile, "found [0, 0)", [] {
    bind(checkpoint(), {"f32", View::strided_rows(0, 0, 0)}, 3, 4);
  });
  expect_error(ErrorKind::kBadFile, "expected a part of the 5 elements of the vector, found [0, 6)",
               [] {
                 bind(checkpoint(), {"vector", View::elements(0, 6)}, 1, 6);
               });
  expect_error(ErrorKind::kBadFile, "tensor 'f32': expected a vector, found shape [6, 4]", [] {
    bind(checkpoint(), {"f32", View::elements(0, 6)}, 1, 6);
  });
}

TEST(Bind, NamesExpectedAndFoundShapes) {
  expect_error(ErrorKind::kBadFile, "tensor 'f32': expected shape [4, 6], found [6, 4]",
               [] { bind(checkpoint(), {"f32"}, 4, 6); });
  expect_error(ErrorKind::kBadFile, "tensor 'experts': expected shape [2, 12], found [2, 3, 4]",
               [] { bind(checkpoint(), {"experts"}, 2, 12); });
  expect_error(ErrorKind::kBadFile,
               "tensor 'f32': expected shape [3, 4], found [6, 4], [2, 4] in the view", [] {
                 bind(checkpoint(), {"f32", View::rows(0, 2)}, 3, 4);
               });
}

TEST(Bind, DoesNotTakeAMatrixForAVector) {
  expect_error(ErrorKind::kBadFile, "expected shape [1, 24], found [6, 4]",
               [] { bind(checkpoint(), {"f32"}, 1, 24); });
}

TEST(Bind, NamesAMissingTensor) {
  expect_error(ErrorKind::kBadFile, "missing tensor 'absent'",
               [] { bind(checkpoint(), {"absent"}, 1, 1); });
}

}  // namespace
}  // namespace lemma::weights
