// SPDX-License-Identifier: Apache-2.0
// A seeded random model, wide enough to have whole blocks of every format: the golden models are
// F32 and too narrow to show what quantized kernels do. Llama shape, width 512, 2 layers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "weights/format.hpp"

namespace lemma::test {

/// The model's size. The narrow one has half the width and one layer, and each matrix has 61
/// different rows over and over, since the encoders of the IQ formats search.
enum class SeededSize { kFull, kNarrow };

/// Writes the model with its matrices in `format` (embedding and output included) to `path`. The
/// weights before quantization are the same for every format.
void write_seeded_model(const std::filesystem::path& path, weights::Format format,
                        SeededSize size = SeededSize::kFull);

/// 40 token ids of that model, seeded.
std::vector<std::int32_t> seeded_tokens();

}  // namespace lemma::test
