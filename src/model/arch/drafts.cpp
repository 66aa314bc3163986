// SPDX-License-Identifier: Apache-2.0
// Draft blocks as GGUF tensors describe them: blocks behind the last layer, each a layer with the
// tensors nextn.* around it. One matrix eh_proj reads [token | row]; some files have it in halves.
#include <string>

#include "base/raise.hpp"
#include "model/arch/arch.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::NormKind;

void read_projections(const Reader& reader, std::uint32_t block, DraftBlock& draft) {
  if (const std::string joined = Reader::block(block, "nextn.eh_proj.weight");
      reader.has_tensor(joined)) {
    const std::uint64_t width = reader.width();
    draft.token.weight = {joined, View::columns(0, width)};
    draft.row.weight = {joined, View::columns(width, 2 * width)};
    return;
  }
  draft.token = reader.linear(block, "nextn.e_proj");
  draft.row = reader.linear(block, "nextn.h_proj");
}

// What the block shares with the model unless it has its own.
void read_shared(const Reader& reader, std::uint32_t block, const Plan& plan, DraftBlock& draft) {
  const auto own = [&](const char* stem) {
    const std::string name = Reader::block(block, stem) + ".weight";
    return reader.has_tensor(name) ? name : std::string();
  };
  draft.table = plan.embedding.table;
  if (const std::string table = own("nextn.embed_tokens"); !table.empty()) draft.table = {table};
  draft.output = plan.head.output;
  if (const std::string head = own("nextn.shared_head_head"); !head.empty())
    draft.output = {.weight = {head}};
  draft.final_norm = own("nextn.shared_head_norm").empty()
                         ? plan.final_norm.value_or(Norm{})
                         : reader.norm(block, "nextn.shared_head_norm", NormKind::kRms);
}

}  // namespace

void Reader::add_drafts(Plan& plan, const std::function<Layer(std::uint32_t)>& layer) const {
  for (std::uint32_t block = layers_; block < layers_ + drafts_; ++block) {
    const std::string prefix = Reader::block(block, "");
    std::erase_if(read_, [&](const std::string& name) { return name.starts_with(prefix); });
    DraftBlock draft;
    draft.token_norm = norm(block, "nextn.enorm", NormKind::kRms);
    draft.row_norm = norm(block, "nextn.hnorm", NormKind::kRms);
    read_projections(*this, block, draft);
    read_shared(*this, block, plan, draft);
    if (const auto* hyper = std::get_if<HyperConnections>(&plan.residual)) {
      draft.reads = DraftBlock::Reads::kStream;
      draft.leave = hyper->leave;
      if (const std::string head = Reader::block(block, "nextn.hc_head");
          has_tensor(head + "_fn.weight"))
        draft.leave = {.fn = {head + "_fn.weight"},
                       .base = {head + "_base.weight"},
                       .scale = {head + "_scale.weight"}};
    }
    draft.layer = layer(block);
    plan.drafts.push_back(std::move(draft));
  }
}

}  // namespace lemma::model::arch
