// SPDX-License-Identifier: Apache-2.0
// What every family shares: the table, the checks of hyper-parameters, and that nothing which may
// change a result is ignored. The checkpoints have no bytes, so none is touched.
#include "model/arch/arch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <ostream>

#include "lemma/error.hpp"
#include "model/arch/tiny_checkpoint.hpp"

namespace lemma::model::arch {
namespace {

using weights::Value;

// The message of the error with which planning fails; "" when it does not fail.
std::string failure(const TinyCheckpoint& checkpoint, const PlanOptions& options = {}) {
  try {
    make_plan(checkpoint, options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Architectures, AreListedInOrderAndOnce) {
  const auto names = known_architectures();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Architectures, AreNamedWhereOneIsUnknown) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  tiny.set("general.architecture", std::string("mamba"));
  const std::string message = failure(tiny);
  EXPECT_NE(message.find("'mamba'"), std::string::npos) << message;
  for (const std::string_view name : known_architectures())
    EXPECT_NE(message.find(name), std::string::npos) << message;
}

TEST(Planning, TouchesNoTensor) {
  const Plan plan = make_plan(TinyCheckpoint::llama(3), {});
  EXPECT_EQ(plan.layers.size(), 3u);
  EXPECT_EQ(plan.vocabulary, 512u);
  EXPECT_EQ(plan.head.output.weight.tensor, "token_embd.weight");
}

struct BadKey {
  const char* name;  ///< of the test
  const char* key;   ///< without the prefix; the message must contain it
  decltype(Value::data) value;
};

void PrintTo(const BadKey& bad, std::ostream* out) {
  *out << bad.key;
}

class HyperParameter : public ::testing::TestWithParam<BadKey> {};

TEST_P(HyperParameter, IsRefusedByItsKey) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(2);
  const std::string key = std::string("llama.") + GetParam().key;
  std::visit([&](const auto& value) { tiny.set(key, value); }, GetParam().value);
  const std::string message = failure(tiny);
  const bool of_rope = key.starts_with("llama.rope.") && message.starts_with("keys 'llama.rope.*'");
  EXPECT_TRUE(of_rope || message.find(key) != std::string::npos) << "message: " << message;
}

INSTANTIATE_TEST_SUITE_P(
    Bad, HyperParameter,
    ::testing::Values(
        BadKey{"no_layers", "block_count", std::int64_t{0}},
        BadKey{"fewer_layers_than_tensors", "block_count", std::int64_t{1}},
        BadKey{"more_layers_than_tensors", "block_count", std::int64_t{513}},
        BadKey{"very_many_layers", "block_count", std::int64_t{100000}},
        BadKey{"layers_beyond_u32", "block_count", std::int64_t{1} << 40},
        BadKey{"no_heads", "attention.head_count", std::int64_t{0}},
        BadKey{"negative_heads", "attention.head_count", std::int64_t{-4}},
        BadKey{"heads_of_too_few_layers", "attention.head_count", Value::Ints{4}},
        BadKey{"no_kv_heads", "attention.head_count_kv", std::int64_t{0}},
        BadKey{"more_kv_heads_than_heads", "attention.head_count_kv", std::int64_t{8}},
        BadKey{"kv_heads_that_do_not_divide", "attention.head_count_kv", std::int64_t{3}},
        BadKey{"kv_heads_of_too_few_layers", "attention.head_count_kv", Value::Ints{2}},
        BadKey{"a_layer_without_kv_heads", "attention.head_count_kv", Value::Ints{2, 0}},
        BadKey{"empty_heads", "attention.key_length", std::int64_t{0}},
        BadKey{"huge_heads", "attention.key_length", std::int64_t{1} << 25},
        BadKey{"empty_values", "attention.value_length", std::int64_t{0}},
        BadKey{"rope_beyond_the_head", "rope.dimension_count", std::int64_t{18}},
        BadKey{"rope_of_no_dims", "rope.dimension_count", std::int64_t{0}},
        BadKey{"rope_of_odd_dims", "rope.dimension_count", std::int64_t{5}},
        BadKey{"unknown_rope_scaling", "rope.scaling.type", std::string("ntk-by-parts")},
        BadKey{"longrope_without_tensors", "rope.scaling.type", std::string("longrope")},
        BadKey{"negative_rope_factor", "rope.scaling.factor", -4.0},
        BadKey{"rope_base_of_zero", "rope.freq_base", 0.0},
        BadKey{"rope_base_that_is_no_number", "rope.freq_base",
               std::numeric_limits<double>::quiet_NaN()},
        BadKey{"no_width", "embedding_length", std::int64_t{0}},
        BadKey{"width_between_heads", "embedding_length", std::int64_t{65}},
        BadKey{"width_as_text", "embedding_length", std::string("64")},
        BadKey{"no_feed_forward", "feed_forward_length", std::int64_t{0}},
        BadKey{"feed_forward_of_too_few_layers", "feed_forward_length", Value::Ints{80}},
        BadKey{"no_context", "context_length", std::int64_t{0}},
        BadKey{"context_beyond_exact_angles", "context_length", std::int64_t{1} << 25},
        BadKey{"experts", "expert_count", std::int64_t{1} << 20},
        BadKey{"experts_in_use_without_any", "expert_used_count", std::int64_t{2}},
        BadKey{"attention_that_looks_ahead", "attention.causal", false},
        BadKey{"a_word_of_other_families", "attention.temperature_scale", 0.1},
        BadKey{"a_pattern_without_meaning_here", "attention.sliding_window_pattern",
               Value::Bools{true, false}},
        BadKey{"a_word_of_the_future", "attention.mirror", std::int64_t{1}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Planning, RefusesAMissingKeyByItsName) {
  for (const char* key : {"llama.block_count", "llama.embedding_length", "llama.context_length",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.attention.layer_norm_rms_epsilon", "general.architecture"}) {
    TinyCheckpoint tiny = TinyCheckpoint::llama(2);
    tiny.remove(key);
    EXPECT_NE(failure(tiny).find(key), std::string::npos) << failure(tiny);
  }
}

TEST(Planning, RefusesAMissingTensorByItsName) {
  for (const char* tensor : {"token_embd.weight", "output_norm.weight", "blk.1.attn_q.weight",
                             "blk.1.ffn_up.weight", "blk.0.ffn_norm.weight"}) {
    TinyCheckpoint tiny = TinyCheckpoint::llama(2);
    tiny.remove_tensor(tensor);
    EXPECT_NE(failure(tiny).find(tensor), std::string::npos) << failure(tiny);
  }
}

TEST(Planning, RefusesATensorThatItWouldIgnore) {
  for (const char* tensor : {"blk.0.attn_q_norm.weight", "blk.1.attn_sinks.weight",
                             "blk.0.post_attention_norm.weight", "blk.1.attn_q.scale"}) {
    TinyCheckpoint tiny = TinyCheckpoint::llama(2);
    tiny.add_tensor(tensor, {16});
    EXPECT_NE(failure(tiny).find(tensor), std::string::npos) << failure(tiny);
  }
}

TEST(Planning, PassesOverKeysAndTensorsThatChangeNothing) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(2);
  tiny.set("llama.vocab_size", std::int64_t{512})
      .set("llama.expert_count", std::int64_t{0})
      .set("llama.attention.causal", true)
      .set("llama.logit_scale", 0.0)
      .set("llama.tensor_data_layout", std::string("Meta AI original pth"))
      .set("llama.vision.block_count", std::int64_t{27})
      .add_tensor("blk.0.attn_rot_embd", {8})
      .add_tensor("v.blk.0.attn_q.weight", {64, 64});
  EXPECT_EQ(failure(tiny), "");
}

TEST(Planning, RefusesAContextWithoutExactAngles) {
  EXPECT_NE(failure(TinyCheckpoint::llama(1), {.context = 1u << 25}).find("context"),
            std::string::npos);
}

TEST(Planning, TakesOneValueForEveryLayerOrOneForEach) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(2);
  tiny.set("llama.attention.head_count_kv", Value::Ints{2, 4})
      .set("llama.feed_forward_length", Value::Ints{80, 48});
  const Plan plan = make_plan(tiny, {});
  EXPECT_EQ(std::get<Gqa>(plan.layers[1].sites[0].mixer).spec.kv_heads, 4u);
  EXPECT_EQ(std::get<DenseMlp>(plan.layers[1].sites[1].mixer).spec.hidden, 48u);
}

TEST(RopeKeys, FoldTheOldFactorKeyIn) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  tiny.set("llama.rope.scale_linear", 4.0);
  const auto rope = std::get<Gqa>(make_plan(tiny, {}).layers[0].sites[0].mixer).rope;
  EXPECT_EQ(rope->scaling, algorithm::RopeScaling(algorithm::LinearScaling{4.f}));
}

TEST(RopeKeys, IgnoreAFactorWhereScalingIsOff) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  tiny.set("llama.rope.scaling.factor", 4.0).set("llama.rope.scaling.type", std::string("none"));
  const auto rope = std::get<Gqa>(make_plan(tiny, {}).layers[0].sites[0].mixer).rope;
  EXPECT_EQ(rope->scaling, algorithm::RopeScaling());
}

// Beyond the trained context this rotation would depend on the text's length.
TEST(RopeKeys, RefuseTheDynamicBaseBeyondTheTrainedContext) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  tiny.set("llama.rope.scaling.dynamic_factor", 4.0);
  EXPECT_EQ(std::get<Gqa>(make_plan(tiny, {}).layers[0].sites[0].mixer).rope->scaling,
            algorithm::RopeScaling());
  const std::string message = failure(tiny, {.context = 257});
  EXPECT_NE(message.find("rope.scaling.dynamic_factor"), std::string::npos) << message;
}

}  // namespace
}  // namespace lemma::model::arch
