// SPDX-License-Identifier: Apache-2.0
#include "weights/view.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/aligned_buffer.hpp"
#include "base/raise.hpp"

namespace lemma::weights {
namespace {

using base::AlignedBuffer;
using base::raise;

/// The whole tensor as rows of its innermost dimension.
Matrix whole(const TensorInfo& tensor) {
  Matrix out{tensor.format,       tensor.rows(), tensor.row_elements(),
             tensor.bytes.data(), nullptr,       tensor.name};
  if (tensor.lazy) {
    auto made = tensor.lazy->get();
    out.bytes = made->data();
    out.owner = std::move(made);
  }
  return out;
}

/// Puts bytes that the checkpoint does not hold behind `matrix`.
void adopt(Matrix& matrix, AlignedBuffer buffer) {
  auto owner = std::make_shared<AlignedBuffer>(std::move(buffer));
  matrix.bytes = owner->data();
  matrix.owner = std::move(owner);
}

/// The values of single elements can be read and moved only where a block is one element.
void require_single_elements(const TensorInfo& tensor, std::string_view view) {
  if (traits(tensor.format).block_elements == 1) return;
  raise(ErrorKind::kUnsupported, "tensor '{}': {} needs F32, F16 or BF16, found {}", tensor.name,
        view, traits(tensor.format).name);
}

void require_within(const TensorInfo& tensor, const View& view, std::uint64_t limit,
                    std::string_view of_what) {
  if (view.begin < view.end && view.end <= limit) return;
  raise(ErrorKind::kBadFile,
        "tensor '{}' of shape [{}]: expected a part of the {} {}, found [{}, {})", tensor.name,
        fmt::join(tensor.shape, ", "), limit, of_what, view.begin, view.end);
}

void require_groups(const TensorInfo& tensor, const View& view) {
  if (tensor.rows() % view.stride == 0) return;
  raise(ErrorKind::kBadFile, "tensor '{}' of shape [{}]: expected groups of {} rows, found {} rows",
        tensor.name, fmt::join(tensor.shape, ", "), view.stride, tensor.rows());
}

void require_whole_blocks(const TensorInfo& tensor, const View& view) {
  const std::uint64_t block = traits(tensor.format).block_elements;
  if (view.begin % block == 0 && view.end % block == 0) return;
  raise(ErrorKind::kUnsupported,
        "tensor '{}': a part of its rows needs blocks of {} elements to stay whole, found [{}, {})",
        tensor.name, block, view.begin, view.end);
}

/// Whether a tensor is a vector: all of its elements along one dimension.
bool is_vector(const TensorInfo& tensor) {
  return std::ranges::count_if(tensor.shape, [](std::uint64_t n) { return n != 1; }) <= 1;
}

void require_vector(const TensorInfo& tensor) {
  if (is_vector(tensor)) return;
  raise(ErrorKind::kBadFile, "tensor '{}': expected a vector, found shape [{}]", tensor.name,
        fmt::join(tensor.shape, ", "));
}

/// Rows of each matrix of a stack.
std::uint64_t matrix_rows(const TensorInfo& tensor) {
  const std::size_t depth = tensor.shape.size();
  return depth < 2 ? 1 : tensor.shape[depth - 2];
}

struct Shape {
  std::uint64_t rows, cols;
};

/// What `view` makes of a tensor's shape, once everything that it needs has been checked.
Shape shape_through(const TensorInfo& tensor, const View& view) {
  const std::uint64_t rows = tensor.rows(), cols = tensor.row_elements();
  const std::uint64_t taken = view.end - view.begin;
  switch (view.kind) {
    case View::Kind::kWhole:
      return {rows, cols};
    case View::Kind::kRows:
      require_within(tensor, view, rows, "rows of the tensor");
      return {taken, cols};
    case View::Kind::kStridedRows:
      require_within(tensor, view, view.stride, "rows of a group");
      require_groups(tensor, view);
      return {rows / view.stride * taken, cols};
    case View::Kind::kColumns:
      require_within(tensor, view, cols, "elements of a row");
      require_whole_blocks(tensor, view);
      return {rows, taken};
    case View::Kind::kElements:
      require_single_elements(tensor, "a part of a vector");
      require_vector(tensor);
      require_within(tensor, view, tensor.elements(), "elements of the vector");
      return {1, taken};
    case View::Kind::kTranspose:
      require_single_elements(tensor, "a transpose");
      return {rows / matrix_rows(tensor) * cols, matrix_rows(tensor)};
    case View::Kind::kAddOne:
      require_single_elements(tensor, "w + 1");
      return {rows, cols};
    case View::Kind::kNegExp:
      require_single_elements(tensor, "-exp(w)");
      return {rows, cols};
  }
  raise(ErrorKind::kInternal, "tensor '{}': a view of unknown kind", tensor.name);
}

// The views themselves; their shapes have been checked.

Matrix rows(const TensorInfo& tensor, const View& view) {
  Matrix out = whole(tensor);
  out.bytes = out.row(view.begin);
  out.rows = view.end - view.begin;
  return out;
}

Matrix strided_rows(const TensorInfo& tensor, const View& view) {
  const Matrix in = whole(tensor);
  const std::uint64_t groups = in.rows / view.stride, taken = view.end - view.begin;
  Matrix out = in;
  out.rows = groups * taken;
  if (groups == 1 || taken == view.stride) {  // contiguous: nothing to copy
    out.bytes = in.row(view.begin);
    return out;
  }
  const std::size_t run = taken * in.row_bytes();
  AlignedBuffer buffer = AlignedBuffer::uninitialized(groups * run);
  for (std::uint64_t g = 0; g < groups; ++g) {
    std::memcpy(buffer.data() + g * run, in.row(g * view.stride + view.begin), run);
  }
  adopt(out, std::move(buffer));
  return out;
}

Matrix columns(const TensorInfo& tensor, const View& view) {
  const Matrix in = whole(tensor);
  Matrix out = in;
  out.cols = view.end - view.begin;
  const std::size_t run = out.row_bytes(), skip = row_bytes(tensor.format, view.begin);
  AlignedBuffer buffer = AlignedBuffer::uninitialized(in.rows * run);
  for (std::uint64_t r = 0; r < in.rows; ++r)
    std::memcpy(buffer.data() + r * run, in.row(r) + skip, run);
  adopt(out, std::move(buffer));
  return out;
}

Matrix elements(const TensorInfo& tensor, const View& view) {
  Matrix out = whole(tensor);
  out.rows = 1;
  out.cols = view.end - view.begin;
  out.bytes += view.begin * traits(tensor.format).block_bytes;
  return out;
}

Matrix transpose(const TensorInfo& tensor) {
  const std::size_t element = traits(tensor.format).block_bytes;
  const std::uint64_t r = matrix_rows(tensor), c = tensor.row_elements();
  const std::uint64_t matrices = tensor.rows() / r;
  const Matrix in = whole(tensor);
  Matrix out = in;
  out.rows = matrices * c;
  out.cols = r;
  AlignedBuffer buffer = AlignedBuffer::uninitialized(in.size_bytes());
  for (std::uint64_t m = 0; m < matrices; ++m) {
    const std::byte* from = in.bytes + m * r * c * element;
    std::byte* to = buffer.data() + m * r * c * element;
    for (std::uint64_t j = 0; j < c; ++j) {
      for (std::uint64_t i = 0; i < r; ++i) {
        std::memcpy(to + (j * r + i) * element, from + (i * c + j) * element, element);
      }
    }
  }
  adopt(out, std::move(buffer));
  return out;
}

template <typename Function>
Matrix map(const TensorInfo& tensor, Function function) {
  const Matrix in = whole(tensor);
  Matrix out = in;
  AlignedBuffer buffer = AlignedBuffer::uninitialized(tensor.elements() * sizeof(float));
  const auto values = buffer.as<float>().first(tensor.elements());
  traits(tensor.format).dequantize(in.bytes, values);
  for (float& value : values) value = function(value);
  out.format = Format::kF32;
  adopt(out, std::move(buffer));
  return out;
}

Matrix resolve(const TensorInfo& tensor, const View& view) {
  switch (view.kind) {
    case View::Kind::kWhole:
      return whole(tensor);
    case View::Kind::kRows:
      return rows(tensor, view);
    case View::Kind::kStridedRows:
      return strided_rows(tensor, view);
    case View::Kind::kColumns:
      return columns(tensor, view);
    case View::Kind::kElements:
      return elements(tensor, view);
    case View::Kind::kTranspose:
      return transpose(tensor);
    case View::Kind::kAddOne:
      return map(tensor, [](float w) { return w + 1.f; });
    case View::Kind::kNegExp:
      return map(tensor, [](float w) { return -std::exp(w); });
  }
  raise(ErrorKind::kInternal, "tensor '{}': a view of unknown kind", tensor.name);
}

}  // namespace

void check_shape(const Checkpoint& checkpoint, const WeightRef& ref, std::uint64_t rows,
                 std::uint64_t cols) {
  const TensorInfo& tensor = checkpoint.at(ref.tensor);
  const Shape shape = shape_through(tensor, ref.view);
  if (shape.rows == rows && shape.cols == cols) return;
  // A vector lies the same in memory whichever dimension it was stored along.
  if (rows == 1 && shape.rows == cols && shape.cols == 1 && is_vector(tensor)) return;
  const std::string seen = ref.view == View::whole()
                               ? ""
                               : fmt::format(", [{}, {}] in the view", shape.rows, shape.cols);
  raise(ErrorKind::kBadFile, "tensor '{}': expected shape [{}, {}], found [{}]{}", tensor.name,
        rows, cols, fmt::join(tensor.shape, ", "), seen);
}

Matrix bind(const Checkpoint& checkpoint, const WeightRef& ref, std::uint64_t rows,
            std::uint64_t cols) {
  check_shape(checkpoint, ref, rows, cols);
  Matrix matrix = resolve(checkpoint.at(ref.tensor), ref.view);
  matrix.rows = rows;
  matrix.cols = cols;
  return matrix;
}

std::vector<float> to_f32(const Matrix& matrix) {
  std::vector<float> out(matrix.rows * matrix.cols);
  traits(matrix.format).dequantize(matrix.bytes, out);
  return out;
}

}  // namespace lemma::weights
