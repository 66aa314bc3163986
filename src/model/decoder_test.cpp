// SPDX-License-Identifier: Apache-2.0
// What the decoder records is what the plan says: the same slots in the same order, and every
// weight. Which numbers come out is tested in tests/golden.
#include "model/decoder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/arch/arch.hpp"
#include "model/plan_cost.hpp"
#include "test_data.hpp"

namespace lemma::model {
namespace {

/// Takes weights and runs nothing.
class ListingBackend final : public backend::Backend {
 public:
  std::string_view name() const noexcept override { return "listing"; }
  std::string description() const override { return "takes weights and runs nothing"; }
  backend::WeightId add(weights::Matrix matrix, backend::WeightUse) override {
    names.insert(matrix.name);
    return next_++;
  }
  std::size_t weight_bytes() const noexcept override { return 0; }
  std::unique_ptr<backend::StateStore> make_state(const state::Layout&,
                                                  std::span<const std::size_t>) override {
    throw std::logic_error("a listing has no state");
  }
  std::unique_ptr<backend::Executable> prepare(const backend::Program&, backend::StateStore&,
                                               const backend::PrepareOptions&) override {
    throw std::logic_error("a listing runs nothing");
  }

  std::set<std::string> names;

 private:
  backend::WeightId next_ = 0;
};

/// The golden models whose architecture is known; all of them should be.
std::vector<std::filesystem::path> golden_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (const auto file = entry.path() / "model.gguf"; std::filesystem::exists(file))
      files.push_back(file);
  std::ranges::sort(files);
  return files;
}

bool known(const weights::Checkpoint& checkpoint) {
  const auto names = known_architectures();
  const std::string& name = checkpoint.metadata().string("general.architecture");
  return std::ranges::find(names, name) != names.end();
}

TEST(Decoder, RecordsTheSlotsAndWeightsOfThePlan) {
  LEMMA_TEST_DATA_OR_SKIP(folder, "goldens");
  std::size_t models = 0;
  for (const auto& file : golden_files(folder)) {
    SCOPED_TRACE(file);
    const auto checkpoint = weights::open_checkpoint(file);
    if (!known(*checkpoint)) continue;
    const Plan plan = make_plan(*checkpoint, {});
    ListingBackend backend;
    WeightBinder binder(*checkpoint, backend);
    EXPECT_EQ(record(plan, binder).slots, slots_of(plan));
    for (std::size_t block = 0; block < plan.drafts.size(); ++block)
      EXPECT_EQ(record_draft(plan, block, binder).slots, slots_of(plan.drafts[block]));
    std::set<std::string> planned;
    for (const WeightRef* weight : weights_of(plan)) planned.insert(weight->tensor);
    EXPECT_EQ(backend.names, planned);
    ++models;
  }
  EXPECT_GE(models, 47u);
}

}  // namespace
}  // namespace lemma::model
