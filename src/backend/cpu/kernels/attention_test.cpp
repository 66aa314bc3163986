// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/kernel_test_data.hpp"
#include "base/half.hpp"

namespace lemma::cpu {
namespace {

class AttentionTest : public KernelTest {};

TEST_P(AttentionTest, TurnsEveryFiniteNumberOfSixteenBits) {
  constexpr std::size_t kWidth = 48, kStride = kWidth + 16;
  for (const std::size_t format : {0u, 1u}) {
    const auto widened = [&](std::uint16_t bits) {
      return format == 0 ? base::f16_to_f32(bits) : base::bf16_to_f32(bits);
    };
    GuardedMemory<std::uint16_t> rows(kPanelRows * kStride - 16);
    GuardedMemory<float> out(kPanelRows * kWidth);
    for (std::size_t first = 0; first < 0x10000; first += rows.size()) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto bits = static_cast<std::uint16_t>(first + i);
        rows[i] = std::isfinite(widened(bits)) ? bits : std::uint16_t{0};
      }
      const Ahead ahead{reinterpret_cast<const std::byte*>(rows.data()), 64};
      table().transpose16[format](reinterpret_cast<const std::byte*>(rows.data()), kStride, kWidth,
                                  first % 2 == 0 ? ahead : Ahead{}, out.data());
      for (std::size_t r = 0; r < kPanelRows; ++r) {
        for (std::size_t i = 0; i < kWidth; ++i) {
          const float want = widened(rows[r * kStride + i]), got = out[i * kPanelRows + r];
          ASSERT_EQ(0, std::memcmp(&want, &got, sizeof want)) << rows[r * kStride + i];
        }
      }
    }
  }
}

TEST_P(AttentionTest, SoftensToTheSameBitsOnEveryInstructionSet) {
  struct Run {
    float largest = -2.f;
    std::vector<float> weights = std::vector<float>(kPiece), mass = std::vector<float>(16, 0.5f),
                       sums = std::vector<float>(48, 0.3f);
  };
  std::vector<std::int32_t> visible(kPiece, 1);
  visible[5] = visible[63] = 0;
  Numbers numbers(3);
  for (const float slope : {0.f, 0.25f}) {
    for (const float softcap : {0.f, 30.f}) {
      Run own, scalar;
      numbers.fill(own.weights, 40.f);
      scalar.weights = own.weights;
      const auto soften = [&](const KernelTable& kernels, Run& run) {
        SoftenJob job;
        job.weights = run.weights.data();
        job.visible = visible.data();
        job.scale = 0.7f;
        job.softcap = softcap;
        job.slope = slope;
        job.distance = -90.f;
        job.largest = &run.largest;
        job.mass = run.mass.data();
        job.sums = run.sums.data();
        job.width = run.sums.size();
        kernels.soften(job);
      };
      soften(table(), own);
      soften(kScalarKernels, scalar);
      EXPECT_EQ(scalar.largest, own.largest);
      EXPECT_EQ(scalar.weights, own.weights);
      EXPECT_EQ(scalar.mass, own.mass);
      EXPECT_EQ(scalar.sums, own.sums);
      EXPECT_EQ(0.f, own.weights[5]);
    }
  }
}

LEMMA_FOR_EACH_ISA(AttentionTest);

}  // namespace
}  // namespace lemma::cpu
