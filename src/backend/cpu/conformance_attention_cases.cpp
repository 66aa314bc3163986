// SPDX-License-Identifier: Apache-2.0
// Conformance cases of attention: selections, latents, compressed entries.
#include <algorithm>
#include <string_view>

#include "backend/cpu/conformance_parts.hpp"

namespace lemma::backend::conformance {
namespace {

using algorithm::Tolerance;
using weights::Format;
namespace tolerance = algorithm::tolerance;

// Selections and what attends to them.

Case attend_blocks_case(std::uint32_t block_size, std::uint32_t top_k, bool selection_itself) {
  CaseBuilder b("attend to " + std::to_string(top_k) + " blocks of " + std::to_string(block_size),
                51);
  algorithm::MsaSpec spec;
  spec.heads = {.query_heads = 6, .kv_heads = 2, .head_dim = 20, .value_dim = 12};
  spec.heads.scale = root(20);
  spec.index_heads = 2;
  spec.index_dim = 24;
  spec.block_size = block_size;
  spec.top_k = top_k;
  const SlotId first = slots(b, spec.slots());
  b.add(Store{first, b.embed(2 * 20)});
  b.add(Store{first + 1, b.embed(2 * 12)});
  b.add(Store{first + 2, b.embed(24)});
  Select select;
  select.rule = spec;
  select.keys = first + 2;
  select.query = b.embed(2 * 24);
  select.out = b.tensor(2 * (1 + spec.list_limit()));
  b.add(select);
  if (selection_itself) return b.finish(select.out, {});
  Attend attend;
  attend.spec = spec.heads;
  attend.key = first;
  attend.value = first + 1;
  attend.query = b.embed(6 * 20);
  attend.selection = select.out;
  attend.out = b.tensor(6 * 12);
  b.add(attend);
  return b.finish(attend.out, tolerance::kAttend);
}

/// The same attention over all keys as a range and as a list, with equal weights.
Case attend_all_case(bool listed) {
  CaseBuilder b(listed ? "attend to a list of all keys" : "attend to all keys", 55);
  algorithm::MsaSpec spec;
  spec.heads = {.query_heads = 4, .kv_heads = 2, .head_dim = 20, .value_dim = 12};
  spec.heads.scale = root(20);
  spec.index_heads = 2;
  spec.index_dim = 16;
  spec.block_size = 3;
  spec.top_k = 80;
  const SlotId first = slots(b, spec.slots());
  b.add(Store{first, b.embed(2 * 20)});
  b.add(Store{first + 1, b.embed(2 * 12)});
  Select select;
  select.rule = spec;
  select.keys = first + 2;
  b.add(Store{first + 2, b.embed(16)});
  select.query = b.embed(2 * 16);
  select.out = b.tensor(2 * (1 + spec.list_limit()));
  b.add(select);
  Attend attend;
  attend.spec = spec.heads;
  attend.key = first;
  attend.value = first + 1;
  attend.query = b.embed(4 * 20);
  if (listed) attend.selection = select.out;
  attend.out = b.tensor(4 * 12);
  b.add(attend);
  return b.finish(attend.out, tolerance::kAttend);
}

struct LatentShape {
  Format format = Format::kF32;
  std::uint32_t heads = 3, latent_rank = 36, nope_dim = 20, rope_dim = 8, value_dim = 12;
  bool transposed = false;
};

AttendLatent latent_operation(CaseBuilder& b, const LatentShape& shape, SlotId& next) {
  AttendLatent op;
  op.spec.heads = shape.heads;
  op.spec.latent_rank = shape.latent_rank;
  op.spec.nope_dim = shape.nope_dim;
  op.spec.rope_dim = shape.rope_dim;
  op.spec.use_rope = shape.rope_dim > 0;
  op.spec.value_dim = shape.value_dim;
  op.spec.scale = root(shape.nope_dim + shape.rope_dim);
  op.spec.temperature_scale = 0.1f;
  op.spec.temperature_floor = 8;
  op.latent = slots(b, op.spec.slots());
  b.add(Store{op.latent, b.embed(shape.latent_rank)});
  next = op.latent + 1;
  if (shape.rope_dim > 0) {
    op.rope = next++;
    b.add(Store{op.rope, b.embed(shape.rope_dim)});
  }
  const std::uint64_t heads = shape.heads;
  op.key_up_transposed = shape.transposed;
  op.key_up = shape.transposed ? matrix(b, shape.format, heads * shape.latent_rank, shape.nope_dim)
                               : matrix(b, shape.format, heads * shape.nope_dim, shape.latent_rank);
  op.value_up = matrix(b, shape.format, heads * shape.value_dim, shape.latent_rank);
  op.query = b.embed(shape.heads * op.spec.query_dim());
  return op;
}

/// The reference's expanded form against the absorbed one; two products may round to int8.
Tolerance latent_tolerance(const LatentShape& shape) {
  const Tolerance exact = tolerance::absorbed(shape.latent_rank);
  return is_float(shape.format) ? exact : exact + 2.0 * tolerance::kInt8Project;
}

Case latent_case(const LatentShape& shape, const std::string& name) {
  CaseBuilder b("attend latent " + name_of(shape.format) + " " + name, 52);
  SlotId next = 0;
  AttendLatent op = latent_operation(b, shape, next);
  op.out = b.tensor(shape.heads * shape.value_dim);
  b.add(op);
  return b.finish(op.out, latent_tolerance(shape));
}

Case latent_tokens_case(std::uint32_t top_k, std::uint32_t kpool, bool selection_itself) {
  const LatentShape shape;
  CaseBuilder b(
      "attend latent, " + std::to_string(top_k) + " tokens, pools of " + std::to_string(kpool), 53);
  SlotId next = 0;
  AttendLatent op = latent_operation(b, shape, next);
  algorithm::DsaSpec spec;
  spec.attention = op.spec;
  spec.attention.q_rank = 16;
  spec.indexer = {.heads = 4, .dim = 24, .rope_dim = 0, .top_k = top_k};
  spec.kpool = kpool;
  spec.always_select_tail = kpool > 0;
  Select select;
  select.rule = spec;
  if (kpool > 0) {
    Compress compress;
    compress.spec = spec.pools();
    compress.rows = slots(b, spec.pools().slots());
    compress.frontier = compress.rows + 1;
    compress.bias = b.vector(std::uint64_t{kpool} * 24);
    compress.value = b.embed(24);
    compress.gate = b.embed(24, 2.f);
    select.keys = compress.rows;
    b.add(compress);
  } else {
    select.keys = slots(b, {spec.slots().back()});
    b.add(Store{select.keys, b.embed(24)});
  }
  select.query = b.embed(4 * 24);
  select.weights = b.embed(4);
  select.out = b.tensor(1 + spec.list_limit());
  b.add(select);
  if (selection_itself) return b.finish(select.out, {});
  op.selection = select.out;
  op.out = b.tensor(shape.heads * shape.value_dim);
  b.add(op);
  return b.finish(op.out, latent_tolerance(shape));
}

/// Latent attention over all tokens as a range and as a list, with equal weights.
Case latent_all_case(bool listed) {
  const LatentShape shape;
  CaseBuilder b(listed ? "attend latent, a list of all" : "attend latent, all", 56);
  SlotId next = 0;
  AttendLatent op = latent_operation(b, shape, next);
  algorithm::DsaSpec spec;
  spec.attention = op.spec;
  spec.attention.q_rank = 16;
  spec.indexer = {.heads = 2, .dim = 16, .rope_dim = 0, .top_k = 240};
  Select select;
  select.rule = spec;
  select.keys = slots(b, {spec.slots().back()});
  b.add(Store{select.keys, b.embed(16)});
  select.query = b.embed(2 * 16);
  select.weights = b.embed(2);
  select.out = b.tensor(1 + spec.list_limit());
  b.add(select);
  if (listed) op.selection = select.out;
  op.out = b.tensor(shape.heads * shape.value_dim);
  b.add(op);
  return b.finish(op.out, latent_tolerance(shape));
}

/// A layer of DeepSeek V4: its window alone (ratio 0), with entries, with chosen entries.
Case compressed_case(std::uint32_t ratio, bool overlap, bool indexed) {
  CaseBuilder b("attend compressed, ratio " + std::to_string(ratio) +
                    (overlap ? ", overlapping" : "") + (indexed ? ", chosen" : ""),
                54);
  algorithm::CompressedSparseSpec spec;
  spec.heads = 5;
  spec.head_dim = 40;
  spec.q_rank = 16;
  spec.window = 9;
  spec.scale = root(40);
  spec.rope.rotary_dim = 16;
  spec.rope.placement = algorithm::RopePlacement::kSuffix;
  spec.ratio = ratio;
  spec.overlap = overlap;
  spec.output_groups = 1;
  spec.output_rank = 8;
  spec.indexer = {.heads = 3, .dim = 24, .rope_dim = 16, .top_k = 3};
  if (indexed) spec.selection = algorithm::EntrySelection::kIndexer;
  const SlotId first = slots(b, spec.slots());
  const auto compress = [&](const algorithm::CompressorSpec& entries, SlotId rows) {
    Compress op;
    op.spec = entries;
    op.entry = spec;
    op.rows = rows;
    op.frontier = rows + 1;
    op.bias = b.vector(std::uint64_t{ratio} * entries.channels());
    op.norm = b.vector(entries.width, 0.2f, 1.f);
    op.value = b.embed(entries.channels());
    op.gate = b.embed(entries.channels(), 2.f);
    b.add(op);
  };
  AttendCompressed op;
  op.spec = spec;
  op.rows = first;
  b.add(Store{first, b.embed(40)});
  if (ratio > 0) {
    op.entries = first + 1;
    compress(spec.entries(), op.entries);
  }
  if (indexed) {
    Select select;
    select.rule = spec;
    select.keys = first + 3;
    compress(spec.index_entries(), select.keys);
    select.query = b.embed(3 * 24);
    select.weights = b.embed(3);
    select.out = b.tensor(1 + 3);
    b.add(select);
    op.selection = select.out;
  }
  op.sinks = b.vector(5);
  op.query = b.embed(5 * 40);
  op.out = b.tensor(5 * 40);
  b.add(op);
  // Entries are pooled, normed and turned before they are attended to.
  return b.finish(
      op.out, tolerance::kAttend + tolerance::kElementwise + tolerance::kNorm + tolerance::kRotate);
}

}  // namespace

Case beside_f16(Case c) {
  CaseBuilder other("", 57);
  const Tensor in = other.embed(16);
  c.weights.push_back(other.finish(other.project(in, 16, Format::kF16), {}).weights.back());
  return c;
}

Tolerance whole_attention_bound(const Case& c) {
  const bool f32 = std::all_of(c.weights.begin(), c.weights.end(), [](const CaseWeight& weight) {
    return weight.matrix.format == Format::kF32 || weight.matrix.format == Format::kI32;
  });
  if (f32) return {};
  const auto count = std::count_if(
      c.program.operations.begin(), c.program.operations.end(), [](const Operation& operation) {
        return std::string_view(operation_name(operation)).starts_with("attend");
      });
  const bool alone = count == 1 && c.site != "logits";
  return (alone ? 1.0 : 2.0 * double(count)) * tolerance::kWholeAttend;
}

std::vector<Case> attention_family_cases() {
  std::vector<Case> cases;
  for (const bool selection : {true, false}) {
    cases.push_back(attend_blocks_case(4, 3, selection));
    cases.push_back(latent_tokens_case(7, 0, selection));
    cases.push_back(latent_tokens_case(8, 4, selection));
  }
  cases.push_back(latent_case({}, "of odd widths"));
  cases.push_back(latent_case({.transposed = true}, "transposed"));
  cases.push_back(latent_case({.nope_dim = 16, .rope_dim = 0}, "without a shared part"));
  cases.push_back(latent_case({.heads = 20, .latent_rank = 48}, "of many heads"));
  for (const bool transposed : {false, true}) {
    cases.push_back(latent_case({.format = Format::kQ8_0,
                                 .heads = 4,
                                 .latent_rank = 64,
                                 .nope_dim = 32,
                                 .rope_dim = 16,
                                 .value_dim = 96,
                                 .transposed = transposed},
                                transposed ? "transposed" : ""));
  }
  cases.push_back(compressed_case(0, false, false));
  cases.push_back(compressed_case(2, false, false));
  cases.push_back(compressed_case(4, true, false));
  cases.push_back(compressed_case(4, true, true));
  std::transform(cases.begin(), cases.end(), cases.begin(), beside_f16);
  return cases;
}

std::vector<std::pair<Case, Case>> range_and_list_cases() {
  std::vector<std::pair<Case, Case>> pairs;
  for (const auto make : {attend_all_case, latent_all_case}) {
    pairs.emplace_back(make(false), make(true));
    pairs.emplace_back(beside_f16(make(false)), beside_f16(make(true)));
  }
  return pairs;
}

}  // namespace lemma::backend::conformance
