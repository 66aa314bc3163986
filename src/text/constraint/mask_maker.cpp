// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/mask_maker.hpp"

#include <algorithm>

namespace lemma::text::constraint {
namespace {

/// More tokens than this that get out of a rule are not worth a list: what stands there is mostly
/// short and strict, and a walk that leaves out dead branches is as quick.
constexpr std::size_t kMostBeyond = 6000;

}  // namespace

MaskMaker::MaskMaker(const Automaton& automaton, const TokenTrie& trie)
    : trie_(trie),
      store_(automaton),
      long_tokens_(trie.longer_than(StateStore::kExactCount)),
      path_(trie.depth() + 1) {}

NodeId MaskMaker::follow(NodeId node, std::string_view text) {
  for (const char c : text) {
    if (node == StateStore::kDead) break;
    node = store_.next(node, static_cast<std::uint8_t>(c));
  }
  return node;
}

void MaskMaker::fill(NodeId node, TokenBits& bits) {
  bits.assign((trie_.vocabulary_size() + 63) / 64, 0);
  if (node == StateStore::kDead) return;
  store_.start_work();
  const NodeId clamped = store_.clamped(node);
  if (const auto known = places_.find(clamped); known != places_.end()) {
    known->second.add_to(bits);
  } else {
    compute(clamped, bits);
    if (place_bytes_ > kMostMaskBytes) {
      places_.clear();
      place_bytes_ = 0;
    }
    const TokenSet& kept = places_.emplace(clamped, TokenSet(bits)).first->second;
    place_bytes_ += kept.bytes() + 64;
  }
  if (clamped != node) try_list(node, long_tokens_, bits);
}

void MaskMaker::compute(NodeId node, TokenBits& bits) {
  const auto own = store_.items(node);
  const std::vector<Item> items(own.begin(), own.end());  // frames add nodes
  if (frame_bytes_ > kMostMaskBytes) {
    frames_.clear();
    frame_bytes_ = 0;
  }
  std::vector<const Frame*> frames;
  for (const Item& item : items) {
    if (item.state < Automaton::kFirstLoop) continue;
    frames.push_back(items.size() > 8 ? nullptr : &frame_of(item));
    if (frames.back() == nullptr || !frames.back()->usable) return walk(node, bits);
  }
  for (const Frame* frame : frames) {
    frame->inside.add_to(bits);
    try_list(node, frame->beyond, bits);
  }
}

const MaskMaker::Frame& MaskMaker::frame_of(const Item& item) {
  const auto key = std::tuple(item.state, item.least, item.most);
  if (const auto known = frames_.find(key); known != frames_.end()) return known->second;
  const Frame& made = frames_.emplace(key, make_frame(item)).first->second;
  frame_bytes_ += made.inside.bytes() + made.beyond.size() * sizeof(TokenTrie::Entry) + 128;
  return made;
}

MaskMaker::Frame MaskMaker::make_frame(const Item& item) {
  const auto nodes = trie_.nodes();
  TokenBits inside((trie_.vocabulary_size() + 63) / 64, 0);
  std::vector<std::uint32_t> beyond;
  // By depth: the rule may have ended at an earlier byte of the path.
  std::vector<std::uint8_t> left(path_.size(), 0);
  path_[0] = store_.alone(item);
  for (std::uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& at = nodes[i];
    const NodeId from = path_[at.depth - 1u];
    const bool out =
        left[at.depth - 1u] != 0 || (from != StateStore::kDead && store_.may_leave(from));
    const NodeId to = from == StateStore::kDead ? from : store_.next(from, at.byte);
    if (to == StateStore::kDead && !out) {
      i = at.end;
      continue;
    }
    path_[at.depth] = to;
    left[at.depth] = out ? 1 : 0;
    for (std::uint32_t rank = at.first; rank < at.last; ++rank) {
      if (to != StateStore::kDead) {
        set_bit(inside, trie_.id(rank));
      } else {
        beyond.push_back(rank);
      }
    }
    if (beyond.size() > kMostBeyond) return {.usable = false, .inside = {}, .beyond = {}};
    ++i;
  }
  return {.usable = true, .inside = TokenSet(inside), .beyond = trie_.list_of(beyond)};
}

void MaskMaker::walk(NodeId node, TokenBits& bits) {
  const auto nodes = trie_.nodes();
  path_[0] = node;
  for (std::uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& at = nodes[i];
    const NodeId to = store_.next(path_[at.depth - 1u], at.byte);
    if (to == StateStore::kDead) {
      i = at.end;
      continue;
    }
    path_[at.depth] = to;
    for (std::uint32_t rank = at.first; rank < at.last; ++rank) set_bit(bits, trie_.id(rank));
    ++i;
  }
}

void MaskMaker::try_list(NodeId node, std::span<const TokenTrie::Entry> list, TokenBits& bits) {
  path_[0] = node;
  std::size_t alive = 0;  // bytes of the token before that could come; path_ is known so far
  bool dead = false;      // and its next byte could not
  for (const TokenTrie::Entry& entry : list) {
    const std::string_view text = trie_.text_of_rank(entry.rank);
    if (dead && entry.common > alive) {
      set_bit(bits, trie_.id(entry.rank), false);
      continue;
    }
    std::size_t done = std::min<std::size_t>(alive, entry.common);
    for (dead = false; done < text.size(); ++done) {
      const NodeId to = store_.next(path_[done], static_cast<std::uint8_t>(text[done]));
      if (to == StateStore::kDead) {
        dead = true;
        break;
      }
      path_[done + 1] = to;
    }
    alive = done;
    set_bit(bits, trie_.id(entry.rank), !dead);
  }
}

void MaskMaker::tidy(std::span<NodeId* const> roots) {
  if (store_.bytes() < kMostStoreBytes) return;
  store_.keep_only(roots);
  places_.clear();
  place_bytes_ = 0;
}

}  // namespace lemma::text::constraint
