// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/topk_moe.hpp"

#include <gtest/gtest.h>

#include "algorithm/attention/test_rows.hpp"
#include "algorithm/linear.hpp"

namespace lemma::algorithm {
namespace {

using test::Ids;
using test::random_row;
using test::Row;

constexpr std::uint32_t kExperts = 6, kChosen = 3, kWidth = 8, kHidden = 5;

MoeSpec small() {
  MoeSpec spec;
  spec.routing.experts = kExperts;
  spec.routing.chosen = kChosen;
  spec.routing.normalize = true;
  spec.expert.width = kWidth;
  spec.expert.hidden = kHidden;
  return spec;
}

/// One gated block per expert; experts of equal seed are equal.
struct Experts {
  explicit Experts(bool alike = false) {
    for (unsigned e = 0; e < kExperts; ++e) {
      const unsigned seed = alike ? 0 : 3 * e;
      gate.push_back(random_row(kHidden * kWidth, 10 + seed));
      up.push_back(random_row(kHidden * kWidth, 11 + seed));
      down.push_back(random_row(kHidden * kWidth, 12 + seed));
    }
  }
  void operator()(std::uint32_t e, std::span<const float> x, std::span<float> y) const {
    Row g(kHidden), u(kHidden);
    for (std::size_t i = 0; i < kHidden; ++i) {
      dot_rows(test::row_of(gate[e], kWidth, i), x.data(), kWidth, 1, &g[i], 1);
      dot_rows(test::row_of(up[e], kWidth, i), x.data(), kWidth, 1, &u[i], 1);
    }
    activate({}, g, u, g);
    for (std::size_t d = 0; d < kWidth; ++d) {
      dot_rows(test::row_of(down[e], kHidden, d), g.data(), kHidden, 1, &y[d], 1);
    }
  }
  std::vector<Row> gate, up, down;
};

Row combined(const MoeSpec& spec, const Experts& experts, const Row& x, const Ids& ids,
             const Row& weights) {
  Row out(x.size()), scratch(2 * x.size());
  combine_experts(spec, x, ids, weights, experts, scratch, out);
  return out;
}

/// Routes of T rows of random logits.
struct Routes {
  explicit Routes(std::uint32_t rows) {
    for (unsigned t = 0; t < rows; ++t) {
      Ids row(kChosen);
      Row row_weights(kChosen), scratch(small().routing.scratch_size());
      const Row logits = random_row(kExperts, 70 + t);
      EXPECT_TRUE(route(small().routing, {logits, {}, {}, {}}, scratch, row, row_weights));
      ids.insert(ids.end(), row.begin(), row.end());
      weights.insert(weights.end(), row_weights.begin(), row_weights.end());
    }
  }
  Ids ids;
  Row weights;
};

TEST(Moe, SumsExpertsByIdAndNotByRank) {
  const Experts experts;
  const Row x = random_row(kWidth, 1);
  const Row want = combined(small(), experts, x, {1, 3, 5}, {0.2f, 0.3f, 0.5f});
  EXPECT_EQ(combined(small(), experts, x, {5, 1, 3}, {0.5f, 0.2f, 0.3f}), want);
  EXPECT_EQ(combined(small(), experts, x, {3, 5, 1}, {0.3f, 0.5f, 0.2f}), want);
}

TEST(Moe, ByGroupsIsRowByRowToTheBit) {
  const Experts experts;
  for (const bool weigh_inputs : {false, true}) {
    MoeSpec spec = small();
    spec.weigh_inputs = weigh_inputs;
    for (std::uint32_t rows = 1; rows <= 5; ++rows) {
      const Routes routes(rows);
      const Row x = random_row(rows * kWidth, 2);
      Ids offsets(kExperts + 1), entries(routes.ids.size());
      Row weights(routes.ids.size()), out(x.size()), scratch(2 * kWidth);
      const RouteGroups groups{offsets, entries, weights};
      group_routes(kExperts, kChosen, routes.ids, routes.weights, groups);
      combine_groups(spec, x, groups, experts, scratch, out);
      for (std::uint32_t t = 0; t < rows; ++t) {
        const auto at = [&](auto& all, std::size_t n) {
          return std::vector(all.begin() + std::ptrdiff_t(t * n),
                             all.begin() + std::ptrdiff_t((t + 1) * n));
        };
        EXPECT_EQ(at(out, kWidth), combined(spec, experts, at(x, kWidth), at(routes.ids, kChosen),
                                            at(routes.weights, kChosen)));
      }
    }
  }
}

TEST(Moe, DoesNotRunExpertsWithoutRows) {
  Ids offsets(kExperts + 1), rows(2), run;
  Row weights(2), out(kWidth), scratch(2 * kWidth);
  group_routes(kExperts, 2, Ids{4, 1}, Row{0.5f, 0.5f}, {offsets, rows, weights});
  const auto note = [&](std::uint32_t e, std::span<const float>, std::span<float> y) {
    run.push_back(e);
    std::fill(y.begin(), y.end(), 0.f);
  };
  combine_groups(small(), random_row(kWidth, 3), {offsets, rows, weights}, note, scratch, out);
  EXPECT_EQ(run, (Ids{1, 4}));
}

TEST(Moe, OfAllExpertsAlikeInWeightIsTheirMean) {
  const Experts experts;
  const Row x = random_row(kWidth, 4);
  Row mean(kWidth, 0.f), y(kWidth);
  for (std::uint32_t e = 0; e < kExperts; ++e) {
    experts(e, x, y);
    for (std::size_t d = 0; d < kWidth; ++d) mean[d] += y[d] / float(kExperts);
  }
  const Row got = combined(small(), experts, x, {0, 1, 2, 3, 4, 5}, Row(6, 1.f / 6.f));
  test::expect_near(got, mean, tolerance::kElementwise);
}

TEST(Moe, OfEqualExpertsIsOneBlockTimesTheScale) {
  const Experts experts(true);
  MoeSpec spec = small();
  spec.routing.scale = 2.5f;
  const Row x = random_row(kWidth, 5), logits = random_row(kExperts, 6);
  Ids ids(kChosen);
  Row weights(kChosen), scratch(spec.routing.scratch_size()), want(kWidth);
  ASSERT_TRUE(route(spec.routing, {logits, {}, {}, {}}, scratch, ids, weights));
  experts(0, x, want);
  for (float& value : want) value *= 2.5f;
  test::expect_near(combined(spec, experts, x, ids, weights), want, tolerance::kElementwise);
}

TEST(Moe, WeighsInputsOrOutputs) {
  const Experts experts;
  const Row x = random_row(kWidth, 7);
  MoeSpec before = small();
  before.weigh_inputs = true;
  Row half(x), want(kWidth);
  for (float& value : half) value *= 0.5f;
  experts(2, half, want);
  EXPECT_EQ(combined(before, experts, x, {2}, {0.5f}), want);
  EXPECT_NE(combined(small(), experts, x, {2}, {0.5f}), want) << "an expert is not linear";
}

TEST(Moe, WithoutRoutedWeightIsWhatIsShared) {
  const Experts experts;
  const Row x = random_row(kWidth, 8);
  Row shared(kWidth);
  experts(0, x, shared);
  Row out = combined(small(), experts, x, {1, 2, 3}, {0.f, 0.f, 0.f});
  add_shared(shared, nullptr, out);
  EXPECT_EQ(out, shared);
}

TEST(Moe, GatesWhatIsSharedByASigmoid) {
  Row out = {1.f, 2.f};
  const float gate = 0.f;
  add_shared(Row{10.f, 20.f}, &gate, out);
  EXPECT_EQ(out, (Row{6.f, 12.f}));
}

TEST(Moe, RefusesWhatMakesNoSense) {
  EXPECT_NO_THROW(small().validate());
  MoeSpec spec = small();
  spec.shared_gate = true;
  test::expect_refused(spec, "shared gate");
  spec.shared = spec.expert;
  EXPECT_NO_THROW(spec.validate());
  spec.shared->width = 9;
  test::expect_refused(spec, "shared width");
  spec = small();
  spec.expert.hidden = 0;
  test::expect_refused(spec, "hidden");
  spec = small();
  spec.routing.chosen = 0;
  test::expect_refused(spec, "chosen");
}

}  // namespace
}  // namespace lemma::algorithm
