// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/mla.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/attention/test_rows.hpp"
#include "algorithm/row_formats.hpp"

namespace lemma::algorithm {
namespace {

using namespace test;

MlaSpec small(std::uint32_t dr = 4) {
  MlaSpec spec{.heads = 2, .latent_rank = 32, .nope_dim = 8, .rope_dim = dr, .value_dim = 6};
  spec.scale = 1.f / std::sqrt(float(spec.query_dim()));
  spec.use_rope = dr > 0;
  return spec;
}

/// One head with random weights over n random tokens.
struct Tokens {
  Tokens(const MlaSpec& spec, std::size_t n)
      : key_up(random_row(spec.nope_dim * spec.latent_rank, 4)),
        value_up(random_row(spec.value_dim * spec.latent_rank, 5)),
        latents(random_row(n * spec.latent_rank, 6)),
        shared(random_row(n * spec.rope_dim, 7)),
        latent(rows_of(latents, spec.latent_rank)),
        rope(rows_of(shared, spec.rope_dim)) {
    for (float& w : key_up) w *= 0.2f;
    for (float& w : value_up) w *= 0.2f;
  }
  MlaHead head() const { return {key_up, value_up}; }

  Row key_up, value_up, latents, shared;
  RowReader latent, rope;
};

using Form = void (*)(const MlaSpec&, const MlaHead&, std::span<const float>, std::uint32_t,
                      const RowIndices&, const RowReader&, const RowReader&,
                      std::span<float>) noexcept;

Row attend_with(Form form, const MlaSpec& spec, const Tokens& tokens, const Row& query,
                const RowIndices& visible, std::uint32_t position = 0) {
  Row out(spec.value_dim);
  form(spec, tokens.head(), query, position, visible, tokens.latent, tokens.rope, out);
  return out;
}

Row values_of(const MlaSpec& spec, const Tokens& tokens, std::uint32_t j) {
  Row value(spec.value_dim);
  expand_latent(spec, tokens.head(), tokens.latent(j), {}, {}, value);
  return value;
}

TEST(ExpandLatent, MultipliesTheLatentAndKeepsTheSharedPart) {
  const MlaSpec spec{.heads = 1, .latent_rank = 2, .nope_dim = 1, .rope_dim = 2, .value_dim = 2};
  const Row key_up = {1, 10}, value_up = {2, 0, 0, 3};
  Row key(3), value(2);
  expand_latent(spec, {key_up, value_up}, Row{4, 5}, Row{8, 9}, key, value);
  EXPECT_EQ(key, (Row{54, 8, 9}));
  EXPECT_EQ(value, (Row{8, 15}));
}

TEST(Mla, OfOneTokenIsItsValueWhateverTheQuery) {
  const MlaSpec spec = small();
  const Tokens tokens(spec, 1);
  for (unsigned seed = 20; seed < 24; ++seed) {
    EXPECT_EQ(attend_with(attend_expanded, spec, tokens, random_row(spec.query_dim(), seed),
                          VisibleRange{0, 1}),
              values_of(spec, tokens, 0));
  }
}

TEST(Mla, OfAZeroQueryIsTheMeanOfValues) {
  const MlaSpec spec = small();
  const Tokens tokens(spec, 5);
  Row mean(spec.value_dim, 0.f);
  for (std::uint32_t j = 0; j < 5; ++j) {
    const Row value = values_of(spec, tokens, j);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += value[i] / 5.f;
  }
  const Row zero(spec.query_dim(), 0.f);
  expect_near(attend_with(attend_expanded, spec, tokens, zero, VisibleRange{0, 5}), mean,
              tolerance::kAttend);
}

TEST(Mla, AddsTheSharedPartToTheScore) {
  MlaSpec spec{.heads = 1, .latent_rank = 1, .nope_dim = 1, .rope_dim = 2, .value_dim = 1};
  spec.scale = 0.5f;
  Tokens tokens(spec, 2);
  tokens.key_up = {1};
  tokens.value_up = {1};
  tokens.latents = {0, 1};
  tokens.shared = {0, 0, 1, 1};
  // The scores are 0 and (2 * 1 + 3 * 1 + 4 * 1) / 2.
  const Row query = {2, 3, 4};
  EXPECT_FLOAT_EQ(attend_with(attend_expanded, spec, tokens, query, VisibleRange{0, 2})[0],
                  1.f / (1.f + std::exp(-4.5f)));
}

TEST(Mla, AbsorbedEqualsExpandedWithinItsTolerance) {
  for (const std::uint32_t dr : {0u, 4u}) {
    const MlaSpec spec = small(dr);
    const Tokens tokens(spec, 60);
    for (unsigned seed = 30; seed < 40; ++seed) {
      const Row query = random_row(spec.query_dim(), seed);
      expect_near(attend_with(attend_absorbed, spec, tokens, query, VisibleRange{0, 60}),
                  attend_with(attend_expanded, spec, tokens, query, VisibleRange{0, 60}),
                  tolerance::absorbed(spec.latent_rank));
    }
  }
}

TEST(Mla, BothFormsTakeTheQueryTemperature) {
  MlaSpec spec = small();
  const Tokens tokens(spec, 9);
  const Row query = random_row(spec.query_dim(), 1);
  const Row cold = attend_with(attend_expanded, spec, tokens, query, VisibleRange{0, 9}, 8);
  spec.temperature_scale = 1.f;
  spec.temperature_floor = 4;
  Row hot = query;
  for (float& x : hot) x *= 1.f + std::log1p(2.f);
  const Row want = attend_with(attend_expanded, small(), tokens, hot, VisibleRange{0, 9}, 8);
  EXPECT_NE(want, cold);
  for (const Form form : {attend_expanded, attend_absorbed}) {
    expect_near(attend_with(form, spec, tokens, query, VisibleRange{0, 9}, 8), want,
                tolerance::absorbed(spec.latent_rank));
  }
}

TEST(Mla, WithIdentityHalvesIsMultiQueryAttentionOverTheLatent) {
  MlaSpec spec{.heads = 3, .latent_rank = 4, .nope_dim = 4, .rope_dim = 0, .value_dim = 4};
  spec.scale = 0.5f;
  spec.use_rope = false;
  Tokens tokens(spec, 7);
  tokens.key_up.assign(16, 0.f);
  for (std::size_t i = 0; i < 4; ++i) tokens.key_up[i * 5] = 1.f;
  tokens.value_up = tokens.key_up;
  const GqaSpec mqa{.query_heads = 3, .kv_heads = 1, .head_dim = 4, .value_dim = 4, .scale = 0.5f};
  const Row query = random_row(4, 1);
  Row want(4);
  attend(mqa, query, 6, {0, 7}, tokens.latent, tokens.latent, nullptr, 0.f, want);
  EXPECT_EQ(attend_with(attend_expanded, spec, tokens, query, VisibleRange{0, 7}), want);
  EXPECT_EQ(attend_with(attend_absorbed, spec, tokens, query, VisibleRange{0, 7}), want);
}

TEST(Mla, OverAListReadsOnlyItsTokens) {
  const MlaSpec spec = small();
  Tokens tokens(spec, 9);
  const Ids ids = {1, 2, 7};
  const Row query = random_row(spec.query_dim(), 1);
  const Row expanded = attend_with(attend_expanded, spec, tokens, query, ids);
  const Row absorbed = attend_with(attend_absorbed, spec, tokens, query, ids);
  for (const std::size_t j : {0u, 3u, 4u, 5u, 6u, 8u}) {
    std::fill_n(tokens.latents.begin() + std::ptrdiff_t(j * spec.latent_rank), spec.latent_rank,
                std::nanf(""));
    tokens.shared[j * spec.rope_dim] = std::nanf("");
  }
  EXPECT_EQ(attend_with(attend_expanded, spec, tokens, query, ids), expanded);
  EXPECT_EQ(attend_with(attend_absorbed, spec, tokens, query, ids), absorbed);
}

/// Rows of a state: encoded as they come, decoded whenever they are read.
struct KeptRows {
  RowFormat format;
  std::size_t width, group;
  std::vector<std::byte> bytes = {};
  Row decoded = Row(width);

  std::size_t row_bytes() const { return row_format_bytes(format, width, group); }
  void keep(std::span<const float> row) {
    bytes.resize(bytes.size() + row_bytes());
    EXPECT_TRUE(encode_row(format, group, row, &bytes[bytes.size() - row_bytes()]));
  }
  RowReader reader() {
    return [this](std::uint32_t j) -> std::span<const float> {
      decode_row(format, group, width, &bytes[j * row_bytes()], 0, decoded);
      return decoded;
    };
  }
};

/// Both slots as `format` asks for.
struct KeptTokens {
  KeptTokens(const MlaSpec& spec, RowFormat format)
      : latents{format, spec.latent_rank, spec.slots()[0].group},
        shared{spec.slots()[1].at_least_f16 && format == RowFormat::kQ8 ? RowFormat::kF16 : format,
               spec.rope_dim, spec.slots()[1].group} {}
  KeptRows latents, shared;
};

TEST(Mla, GivesTheSameBitsForEveryChunkingInEveryFormat) {
  const MlaSpec spec = small();
  const std::uint32_t n = 7;
  const Tokens tokens(spec, n);
  const Row q = random_row(n * spec.query_dim(), 8);
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kF16, RowFormat::kQ8}) {
    for (const Form form : {attend_expanded, attend_absorbed}) {
      Row want, out;
      const auto compare = [&] {
        if (want.empty()) want = out;
        ASSERT_EQ(out, want) << to_string(format);
      };
      KeptTokens kept(spec, format);
      for_all_cuts(
          n,
          [&](std::uint32_t) {
            if (!out.empty()) compare();
            out.assign(n * spec.value_dim, 0.f);
            kept = KeptTokens(spec, format);
          },
          [&](std::uint32_t begin, std::uint32_t end) {
            for (std::uint32_t p = begin; p < end;
                 ++p) {  // a chunk's rows are kept before it reads
              kept.latents.keep(tokens.latent(p));
              kept.shared.keep(tokens.rope(p));
            }
            for (std::uint32_t p = begin; p < end; ++p) {
              form(spec, tokens.head(), row_of(q, spec.query_dim(), p), p, VisibleRange{0, p + 1},
                   kept.latents.reader(), kept.shared.reader(),
                   std::span(out).subspan(p * spec.value_dim, spec.value_dim));
            }
          });
      compare();
    }
  }
}

TEST(MlaSpec, RemembersALatentAndASharedPartThatStaysFine) {
  const MlaSpec spec{.heads = 16, .latent_rank = 512, .nope_dim = 128, .rope_dim = 64};
  const Slots slots = spec.slots();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0], (Slot{.width = 512}));
  EXPECT_EQ(slots[1], (Slot{.width = 64, .at_least_f16 = true}));
}

TEST(MlaSpec, WithoutASharedPartRemembersTheLatentOnly) {
  EXPECT_EQ(small(0).slots(), (Slots{Slot{.width = 32}}));
}

TEST(MlaSpec, NamesTheWrongField) {
  const MlaSpec good = small();
  EXPECT_NO_THROW(good.validate());
  EXPECT_NO_THROW(small(0).validate());
  expect_refused(changed(good, &MlaSpec::heads, 0u), "heads");
  expect_refused(changed(good, &MlaSpec::latent_rank, 0u), "latent_rank");
  expect_refused(changed(good, &MlaSpec::latent_rank, 0xffffffffu), "latent_rank");
  expect_refused(changed(good, &MlaSpec::rope_dim, 3u), "rope_dim");
  expect_refused(changed(good, &MlaSpec::nope_dim, 0xfffffff0u), "nope_dim");
  expect_refused(changed(changed(small(0), &MlaSpec::nope_dim, 0u), &MlaSpec::use_rope, false),
                 "nope_dim");
  expect_refused(changed(good, &MlaSpec::value_dim, 0u), "value_dim");
  expect_refused(changed(good, &MlaSpec::value_dim, 0x80000000u), "value_dim");
  for (const float bad : {0.f, -1.f, std::nanf(""), kInfinity}) {
    expect_refused(changed(good, &MlaSpec::scale, bad), "scale");
    expect_refused(changed(good, &MlaSpec::latent_eps, bad), "latent_eps");
  }
  expect_refused(changed(small(0), &MlaSpec::use_rope, true), "use_rope");
  expect_refused(changed(good, &MlaSpec::temperature_scale, kInfinity), "temperature_scale");
  expect_refused(changed(good, &MlaSpec::temperature_scale, 0.1f), "temperature_floor");
}

}  // namespace
}  // namespace lemma::algorithm
