// SPDX-License-Identifier: Apache-2.0
// StateStore: where an automaton can stand after some bytes, and how it goes on. A place is a set
// of stacks, kept as a graph: an item is a state with the node of its callers, a node is a set of
// items. Equal nodes are one node, so that a place is one number and what was found out about it
// (the next place for a class of bytes) is found out once. Stacks that agree at the top share it,
// and items that differ only in their callers or in overlapping counts become one, so that a node
// has at most about as many items as the automaton has states, however ambiguous the grammar is.
// The idea is the graph-structured stack (M. Tomita, "Efficient Parsing for Natural Language",
// 1986); collapsing equal sets makes it a deterministic automaton that is built as it is used.
//
// Not thread-safe. Node ids hold until keep_only(). A node that is never made is dead, not an
// error: deeper nesting than kMostDepth, or more than kMostItems items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/constraint/automaton.hpp"

namespace lemma::text::constraint {

using NodeId = std::uint32_t;

/// In `state`, called from any of `parent`'s items. A loop's state has counts: the rule can be read
/// `least` to `most` more times.
struct Item {
  std::uint32_t state = 0, least = 0, most = 0;
  NodeId parent = 0;
  friend auto operator<=>(const Item&, const Item&) = default;
};

class StateStore {
 public:
  static constexpr NodeId kDead = 0;      ///< no text leads on from here
  static constexpr NodeId kFinished = 1;  ///< the text is complete
  static constexpr NodeId kCaller = 2;    ///< somewhere in an unknown caller
  static constexpr std::uint32_t kMostDepth = 1000;
  static constexpr std::uint32_t kMostItems = 2048;
  /// Counts are exact up to here in a clamped node; see clamped().
  static constexpr std::uint32_t kExactCount = 32;
  /// Thrown over (kUsage) rather than surpassed, between two calls of keep_only().
  static constexpr std::size_t kMostBytes = std::size_t{96} << 20;

  static constexpr std::uint64_t kMostWork = 5'000'000;

  /// `automaton` must outlive the store.
  explicit StateStore(const Automaton& automaton);

  NodeId start() { return start_; }
  /// The node of one item whose caller is unknown.
  NodeId alone(Item item);
  /// Where one more byte leads.
  NodeId next(NodeId node, std::uint8_t byte) {
    const std::uint32_t row = nodes_[node].row;
    const std::uint8_t byte_class = automaton_.classes[byte];
    if (row != kNone) {
      const NodeId known = transitions_[row + byte_class];
      if (known != kNone) return known;
    }
    return step(node, byte_class);
  }
  bool may_end(NodeId node) { return (flags_of(node) & kMayEnd) != 0; }
  /// True if the rule that alone() stands in may end here.
  bool may_leave(NodeId node) { return (flags_of(node) & kMayLeave) != 0; }
  /// A node that takes the same texts of at most kExactCount bytes, and that is the same one for
  /// all large counts.
  NodeId clamped(NodeId node) const { return nodes_[node].clamped; }
  std::span<const Item> items(NodeId node) const {
    return std::span(items_).subspan(nodes_[node].items, nodes_[node].item_count);
  }
  std::size_t bytes() const noexcept;
  std::size_t size() const noexcept { return nodes_.size(); }
  /// Forgets all but `roots`, which get new ids.
  void keep_only(std::span<NodeId* const> roots);

  /// Begins a budget of kMostWork items to look at; surpassing it throws kUsage.
  void start_work() noexcept { most_work_ = work_ + kMostWork; }
  std::uint64_t work() const noexcept { return work_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr std::uint8_t kKnown = 1, kMayEnd = 2, kMayLeave = 4;

  struct Node {
    std::uint32_t items = 0, item_count = 0;
    std::uint32_t closure = 0, closure_count = 0;  ///< into closures_, once kKnown
    std::uint32_t row = kNone;                     ///< into transitions_
    NodeId clamped = 0;
    std::uint16_t depth = 0;
    std::uint8_t flags = 0;
  };
  /// A state with edges for bytes, and its callers.
  struct Open {
    std::uint32_t state;
    NodeId parent;
  };
  struct Pending {
    std::uint32_t rank, rule;
    Item item;  ///< where to go on after the rule
  };
  class Closing;

  std::uint8_t flags_of(NodeId node) {
    if ((nodes_[node].flags & kKnown) == 0) close(node);
    return nodes_[node].flags;
  }
  void close(NodeId node);
  NodeId step(NodeId node, std::uint8_t byte_class);
  NodeId make(std::vector<Item> items);
  NodeId unite(NodeId a, NodeId b);
  void normalize(std::vector<Item>& items);
  void expand_returns(std::vector<Item>& items) const;
  NodeId intern(const std::vector<Item>& items);
  NodeId find_or_add(const std::vector<Item>& items, bool& fresh);
  void clamp(NodeId node);
  void grow_index();
  void reset();

  const Automaton& automaton_;
  std::vector<Node> nodes_;
  std::vector<Item> items_;
  std::vector<Open> closures_;
  std::vector<NodeId> transitions_;
  std::vector<NodeId> index_;  ///< open addressing by the items' hash; kNone: free
  std::unordered_map<std::uint64_t, NodeId> unions_;
  std::vector<std::uint8_t> representatives_;  ///< by class: a byte of it
  std::uint64_t work_ = 0, most_work_ = kMostWork;
  NodeId start_ = kDead;
};

}  // namespace lemma::text::constraint
