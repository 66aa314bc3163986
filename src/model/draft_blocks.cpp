// SPDX-License-Identifier: Apache-2.0
// Draft blocks as operations: what stands before and behind their one layer. The formula is in
// docs/contract.md, "Draft blocks".
#include <string>

#include "model/decoder.hpp"
#include "model/recorder.hpp"

namespace lemma::model {

using backend::Tensor;
using backend::WeightUse;

backend::Program record_draft(const Plan& plan, std::size_t block, WeightBinder& weights) {
  return Recorder(plan, weights).record_draft(block);
}

backend::Program Recorder::record_draft(std::size_t block) {
  const DraftBlock& draft = plan_.drafts.at(block);
  const std::string prefix = "drafts." + std::to_string(block) + ".";
  layer_ = plan_.layers.size() + block;
  prefix_ = prefix;
  Residual residual{.stream = join(draft)};
  layer(draft.layer, residual);
  prefix_ = prefix;
  const Tensor left = leave(residual, &draft.leave);
  program_.hidden = norm(draft.final_norm, left, "final_norm");
  program_.handed_on =
      draft.reads == DraftBlock::Reads::kHidden ? program_.hidden : residual.stream;
  head(program_.hidden, draft.output);
  return std::move(program_);
}

// [T, D], or [T, n * D] where the residual has several streams: each reads the one stream of the
// model that has its number.
Tensor Recorder::join(const DraftBlock& draft) {
  const std::uint32_t width = plan_.width;
  backend::Embed embed{.table = bind(draft.table, plan_.vocabulary, width, WeightUse::kTable)};
  embed.scale = plan_.embedding.scale;
  embed.out = tensor("embedding", width);
  emit(embed);
  const Tensor token = norm(draft.token_norm, embed.out, "token_norm");
  const Tensor projected = project(draft.token, token, width, "token");

  const auto* hyper = std::get_if<HyperConnections>(&plan_.residual);
  const std::uint32_t streams = hyper ? hyper->spec.streams : 1;
  const backend::Receive receive{.out = tensor("received", streams * width)};
  emit(receive);
  const Tensor row = head_norm(draft.row_norm, width, false, receive.out, "row_norm");
  if (!hyper) return add(projected, project(draft.row, row, width, "row"), "joined");

  backend::ProjectGroups each{.spec = {streams, width, width, true}, .in = row};
  each.weight = bind(draft.row.weight, width, width, WeightUse::kMatrix);
  each.out = tensor("row", receive.out.width);
  emit(each);
  return add(enter(projected), each.out, "joined");
}

}  // namespace lemma::model
