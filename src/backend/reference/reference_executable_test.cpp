// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/reference_executable.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "backend/reference/reference_backend.hpp"
#include "state/page_pool.hpp"
#include "state/sequence.hpp"

namespace lemma::reference {
namespace {

constexpr std::uint32_t kWidth = 2, kVocabulary = 3, kRows = 8;

/// logits = table[token] * head^T over steps of at most kRows rows, with state for one sequence.
class TinyHead {
 public:
  explicit TinyHead(std::uint32_t max_logit_rows) {
    backend::Embed embed{.table = weight({1, 0, 0, 1, 1, 1}, backend::WeightUse::kTable)};
    embed.out = program_.tensor("embedding", kWidth);
    program_.operations = {
        embed, backend::Head{.weight = weight({1, 2, 3, 4, 5, 6}, backend::WeightUse::kMatrix),
                             .in = embed.out}};
    program_.vocabulary = kVocabulary;
    state_ = backend_->make_state(layout_, {});
    executable_ =
        backend_->prepare(program_, *state_, {.max_rows = kRows, .max_logit_rows = max_logit_rows});
  }

  void run(const std::vector<std::uint32_t>& logit_rows) {
    const std::vector<std::int32_t> tokens(kRows, 2);
    const std::vector<algorithm::RopePosition> positions(kRows);
    state::PagePool pool(layout_, {});
    const state::Sequence sequence(pool);
    const backend::Segment segment{.rows = kRows, .sequence = &sequence};
    executable_->run({tokens, positions, {&segment, 1}, logit_rows});
  }
  backend::Executable& executable() { return *executable_; }

 private:
  backend::WeightId weight(const std::array<float, 6>& values, backend::WeightUse use) {
    auto owned = std::make_shared<std::array<float, 6>>(values);
    const auto* const bytes = reinterpret_cast<const std::byte*>(owned->data());
    return backend_->add({weights::Format::kF32, kVocabulary, kWidth, bytes, owned, "w"}, use);
  }

  std::unique_ptr<backend::Backend> backend_ = make_backend();
  backend::Program program_;
  state::Layout layout_{{}, {}};
  std::unique_ptr<backend::StateStore> state_;
  std::unique_ptr<backend::Executable> executable_;
};

TEST(ReferenceExecutable, HoldsLogitsForTheRowsThatMayWantThem) {
  TinyHead few(2), all(0);
  const std::size_t row = (kWidth + kVocabulary) * sizeof(float);
  EXPECT_EQ(all.executable().scratch_bytes() - few.executable().scratch_bytes(), (kRows - 2) * row);
}

TEST(ReferenceExecutable, NeedsNoMoreMemoryForLogitsWhileItRuns) {
  TinyHead head(2);
  head.run({});  // decodes weights, which needs a row of scratch
  const std::size_t before = head.executable().scratch_bytes();
  head.run({3, 7});
  EXPECT_EQ(head.executable().scratch_bytes(), before);
  for (const std::size_t i : {0u, 1u}) {
    const auto logits = head.executable().logits(i);
    EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), (std::vector<float>{3, 7, 11}));
  }
}

}  // namespace
}  // namespace lemma::reference
