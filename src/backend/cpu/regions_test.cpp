// SPDX-License-Identifier: Apache-2.0
// How many parallel regions a layer takes: each one starts all threads and waits for them. Counted
// as what one layer more adds to a program.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "backend/cpu/conformance_parts.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/executable.hpp"

namespace lemma::cpu {
namespace {

using namespace backend::conformance;
using backend::kNoWeight;
using backend::Tensor;
using weights::Format;

constexpr std::uint32_t kWidth = 512, kHeads = 8, kKvHeads = 2, kDim = 64, kHidden = 1024;
constexpr std::size_t kMostRegions = 6;

class Layers {
 public:
  Layers() : b_("layers", 7) { stream_ = b_.embed(kWidth); }

  void attention() {
    const Tensor x = norm(stream_, 0), q = b_.tensor(kHeads * kDim), k = b_.tensor(kKvHeads * kDim),
                 v = b_.tensor(kKvHeads * kDim), attended = b_.tensor(kHeads * kDim);
    b_.add(backend::Project{x,
                            {{weight(q.width, kWidth), kNoWeight, q},
                             {weight(k.width, kWidth), kNoWeight, k},
                             {weight(v.width, kWidth), kNoWeight, v}}});
    const Tensor turned_q = rotate(norm(q, kDim)), turned_k = rotate(norm(k, kDim));
    algorithm::GqaSpec spec{kHeads, kKvHeads, kDim, kDim};
    spec.scale = 0.125f;
    const backend::SlotId slot = slots(b_, spec.slots());
    b_.add(backend::Store{slot, turned_k});
    b_.add(backend::Store{slot + 1, v});
    b_.add(backend::Attend{spec, slot, slot + 1, kNoWeight, turned_q, {}, attended});
    add(b_.project(attended, kWidth, Format::kQ8_0));
  }

  void recurrent() {
    const Tensor x = norm(stream_, 0);
    algorithm::GatedDeltaNetSpec spec;
    spec.key_heads = spec.value_heads = 4;
    spec.key_dim = spec.value_dim = 64;
    spec.kernel = 4;
    backend::Recur op;
    op.spec = spec;
    op.matrix = slots(b_, spec.slots());
    op.history = op.matrix + 1;
    backend::Project project{x, {}};
    for (const std::uint32_t width : {spec.channels(), 4u, 4u, 4u * 64}) {
      project.outputs.push_back({weight(width, kWidth), kNoWeight, b_.tensor(width)});
    }
    b_.add(project);
    op.channels = {project.outputs[0].out};
    op.decay = project.outputs[1].out;
    op.beta = project.outputs[2].out;
    op.gate = project.outputs[3].out;
    op.convolutions = {b_.vector(std::uint64_t{spec.channels()} * 4)};
    op.rate = b_.vector(4);
    op.dt_bias = b_.vector(4);
    op.norm = b_.vector(64, 0.2f, 1.f);
    op.out = b_.tensor(4 * 64);
    b_.add(op);
    add(b_.project(op.out, kWidth, Format::kQ8_0));
  }

  void mlp() {
    backend::Mlp op;
    op.spec.width = kWidth;
    op.spec.hidden = kHidden;
    op.gate = weight(kHidden, kWidth);
    op.up = weight(kHidden, kWidth);
    op.down = weight(kWidth, kHidden);
    op.in = norm(stream_, 0);
    op.out = b_.tensor(kWidth);
    b_.add(op);
    add(op.out);
  }

  void experts() {
    constexpr std::uint32_t kExperts = 8, kChosen = 2;
    const Tensor x = norm(stream_, 0);
    backend::Route route;
    route.spec = {.experts = kExperts, .chosen = kChosen};
    route.logits = b_.project(x, kExperts, Format::kF32);
    route.ids = b_.tensor(kChosen);
    route.weights = b_.tensor(kChosen);
    b_.add(route);
    backend::Experts op;
    op.spec.width = kWidth;
    op.spec.hidden = 256;
    op.experts = kExperts;
    op.gate = weight(kExperts * 256, kWidth);
    op.up = weight(kExperts * 256, kWidth);
    op.down = weight(kExperts * kWidth, 256);
    op.in = x;
    op.ids = route.ids;
    op.weights = route.weights;
    op.out = b_.tensor(kWidth);
    b_.add(op);
    add(op.out);
  }

  Case finish() {
    const Tensor last = norm(stream_, 0);
    b_.program().hidden = last;
    b_.add(backend::Head{weight(CaseBuilder::kVocabulary, kWidth), kNoWeight, 1.f, 0.f, last});
    return b_.finish_with_logits({});
  }

 private:
  backend::WeightId weight(std::uint32_t rows, std::uint32_t cols) {
    return matrix(b_, Format::kQ8_0, rows, cols);
  }
  Tensor norm(Tensor in, std::uint32_t group) {
    const Tensor out = b_.tensor(in.width);
    b_.add(backend::Norm{
        {}, b_.vector(group == 0 ? in.width : group, 0.1f, 1.f), kNoWeight, group, false, in, out});
    return out;
  }
  Tensor rotate(Tensor in) {
    algorithm::RopeSpec rope;
    rope.rotary_dim = kDim;
    const Tensor out = b_.tensor(in.width);
    b_.add(backend::Rotate{b_.program().rope(rope), kDim, false, in, out});
    return out;
  }
  void add(Tensor branch) {
    const Tensor out = b_.tensor(kWidth);
    b_.add(backend::Add{stream_, branch, out});
    stream_ = out;
  }

  CaseBuilder b_;
  Tensor stream_;
};

/// Regions of each step of a program: one of many rows, and then one of a single row.
std::vector<std::size_t> regions_of(const Case& c) {
  std::vector<std::size_t> regions;
  std::size_t before = 0;
  RunOptions run{.schedule = chunks(65, {64, 1})};
  run.look = [&](const backend::Executable& executable, bool runs) {
    const auto* const cpu = dynamic_cast<const CpuExecutable*>(&executable);
    ASSERT_NE(cpu, nullptr);
    if (!runs) regions.push_back(cpu->regions() - before);
    before = cpu->regions();
  };
  run_case(*make_backend({.threads = 2}), c, run);
  return regions;
}

/// What one more layer adds, for many rows and for one.
std::vector<std::size_t> regions_of_a_layer(const std::function<void(Layers&)>& layer) {
  std::vector<std::vector<std::size_t>> counts;
  for (const int layers : {2, 3}) {
    Layers made;
    for (int l = 0; l < layers; ++l) layer(made);
    counts.push_back(regions_of(made.finish()));
  }
  return {counts.at(1).at(0) - counts.at(0).at(0), counts.at(1).at(1) - counts.at(0).at(1)};
}

TEST(Regions, OfADenseLayerAreFour) {
  const auto layer = [](Layers& layers) {
    layers.attention();
    layers.mlp();
  };
  // Heads with what follows them; attention; its output with the sum, norm and rounding; the MLP
  // with the same. (Attention to a short history by one row may stay on the calling thread.)
  EXPECT_EQ(regions_of_a_layer(layer), (std::vector<std::size_t>{4, 4}));
}

TEST(Regions, OfALayerWithExpertsAreAtMostSix) {
  const auto layer = [](Layers& layers) {
    layers.attention();
    layers.experts();
  };
  for (const std::size_t regions : regions_of_a_layer(layer)) EXPECT_LE(regions, kMostRegions);
}

TEST(Regions, OfARecurrentLayerAreAtMostSix) {
  const auto layer = [](Layers& layers) {
    layers.recurrent();
    layers.mlp();
  };
  for (const std::size_t regions : regions_of_a_layer(layer)) EXPECT_LE(regions, kMostRegions);
}

TEST(Regions, AreNamedForOperationsThatHaveNoneOfTheirOwn) {
  Layers layers;
  layers.attention();
  layers.mlp();
  const Outcome outcome = run_case(*make_backend({.threads = 2, .isa = base::Isa::kScalar}),
                                   layers.finish(), {.schedule = chunks(1, {1})});
  std::vector<std::string> ways;
  for (const backend::Placement& placement : outcome.placements) {
    const std::string& how = placement.implementation;
    const std::size_t comma = how.rfind(", ");
    ways.push_back(placement.operation + (comma == std::string::npos ? "" : how.substr(comma)));
  }
  const std::string rows = ", one pass over rows", head = ", on each head as it is made",
                    behind = ", in the region before it";
  EXPECT_EQ(ways,
            (std::vector<std::string>{
                "embed" + rows, "norm" + rows, "project", "norm" + head, "rotate" + head,
                "norm" + head, "rotate" + head, "store" + head, "store" + head, "attend", "project",
                "add" + behind, "norm" + behind, "mlp", "add" + behind, "norm" + behind, "head"}));
}

}  // namespace
}  // namespace lemma::cpu
