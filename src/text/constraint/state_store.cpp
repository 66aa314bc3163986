// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/state_store.hpp"

#include <algorithm>
#include <tuple>

#include "base/raise.hpp"

namespace lemma::text::constraint {
namespace {

std::uint64_t hash_of(const std::vector<Item>& items) noexcept {
  std::uint64_t hash = 0x9e3779b97f4a7c15u;
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x2545f4914f6cdd1du;
    hash ^= hash >> 31;
  };
  for (const Item& item : items) {
    mix(std::uint64_t{item.state} << 32 | item.parent);
    mix(std::uint64_t{item.least} << 32 | item.most);
  }
  return hash;
}

std::uint32_t one_less(std::uint32_t count) noexcept {
  return count == kUnbounded ? kUnbounded : count - 1;
}

}  // namespace

StateStore::StateStore(const Automaton& automaton) : automaton_(automaton) {
  representatives_.resize(automaton.class_count);
  for (int byte = 255; byte >= 0; --byte)
    representatives_[automaton.classes[static_cast<std::size_t>(byte)]] =
        static_cast<std::uint8_t>(byte);
  reset();
}

void StateStore::reset() {
  nodes_.clear();
  items_.clear();
  closures_.clear();
  transitions_.clear();
  unions_.clear();
  index_.assign(1024, kNone);
  nodes_.push_back({});  // kDead
  nodes_[0].flags = kKnown;
  intern({{Automaton::kFinished, 0, 0, kDead}});
  intern({{Automaton::kCaller, 0, 0, kDead}});
  start_ = make({{automaton_.starts[automaton_.root], 0, 0, kFinished}});
}

NodeId StateStore::alone(Item item) {
  item.parent = kCaller;
  return make({item});
}

std::size_t StateStore::bytes() const noexcept {
  return nodes_.capacity() * sizeof(Node) + items_.capacity() * sizeof(Item) +
         closures_.capacity() * sizeof(Open) +
         (transitions_.capacity() + index_.capacity()) * sizeof(NodeId) + unions_.size() * 48;
}

/// What the items of one node call and where they may end, worked off in the order of ranks, so
/// that all callers of a rule are known when it is opened.
class StateStore::Closing {
 public:
  explicit Closing(StateStore& store) : store_(store), automaton_(store.automaton_) {}

  std::vector<Open> open;
  std::uint8_t flags = kKnown;

  void run(NodeId node) {
    include(node);
    for (std::size_t i = 0; i < kernel_.size(); ++i) {
      ++store_.work_;
      take(kernel_[i]);
    }
    while (!pending_.empty()) open_next();
  }

 private:
  /// The items of a caller that is returned to, once.
  void include(NodeId node) {
    store_.work_ += included_.size() / 8;
    if (std::find(included_.begin(), included_.end(), node) != included_.end()) return;
    included_.push_back(node);
    const auto items = store_.items(node);
    kernel_.insert(kernel_.end(), items.begin(), items.end());
  }

  void take(Item item) {
    if (item.state == Automaton::kFinished) {
      flags |= kMayEnd;
    } else if (item.state == Automaton::kCaller) {
      flags |= kMayLeave;
    } else if (automaton_.is_loop(item.state)) {
      if (item.most > 0) {
        later(item.state - Automaton::kFirstLoop,
              {item.state, item.least - (item.least > 0), one_less(item.most), item.parent});
      }
      if (item.least == 0) include(item.parent);
    } else {
      if (automaton_.states[item.state].accepts) include(item.parent);
      follow(item.state, item.parent);
    }
  }

  void follow(std::uint32_t state, NodeId parent) {
    const AutomatonState& from = automaton_.states[state];
    if (from.bytes_begin != from.bytes_end) open.push_back({state, parent});
    for (std::uint32_t i = from.calls_begin; i < from.calls_end; ++i) {
      ++store_.work_;
      const CallEdge& call = automaton_.call_edges[i];
      const Item back = {call.target, 0, 0, parent};
      if (!call.is_loop()) {
        later(call.rule, back);
      } else if (const NodeId behind = store_.make({back}); behind != kDead) {
        later(call.rule,
              {automaton_.loop_of(call.rule), call.least - 1, one_less(call.most), behind});
      }
    }
  }

  static bool after(const Pending& a, const Pending& b) { return a.rank > b.rank; }

  void later(std::uint32_t rule, const Item& item) {
    pending_.push_back({automaton_.ranks[rule], rule, item});
    std::push_heap(pending_.begin(), pending_.end(), after);
  }

  void open_next() {
    const std::uint32_t rule = pending_.front().rule;
    std::vector<Item> callers;
    while (!pending_.empty() && pending_.front().rule == rule) {
      callers.push_back(pending_.front().item);
      std::pop_heap(pending_.begin(), pending_.end(), after);
      pending_.pop_back();
    }
    store_.work_ += callers.size();
    const NodeId parent = store_.make(std::move(callers));
    if (parent != kDead) follow(automaton_.starts[rule], parent);
  }

  StateStore& store_;
  const Automaton& automaton_;
  std::vector<Item> kernel_;
  std::vector<NodeId> included_;
  std::vector<Pending> pending_;
};

void StateStore::close(NodeId node) {
  if (work_ > most_work_) {
    base::raise(ErrorKind::kUsage,
                "the grammar is too ambiguous to be followed: one token took more than {} steps",
                kMostWork);
  }
  Closing closing(*this);
  closing.run(node);
  Node& closed = nodes_[node];
  closed.closure = static_cast<std::uint32_t>(closures_.size());
  closed.closure_count = static_cast<std::uint32_t>(closing.open.size());
  closures_.insert(closures_.end(), closing.open.begin(), closing.open.end());
  closed.flags = closing.flags;
}

NodeId StateStore::step(NodeId node, std::uint8_t byte_class) {
  if (node == kDead) return kDead;
  flags_of(node);
  const std::uint8_t byte = representatives_[byte_class];
  std::vector<Item> items;
  const Node from = nodes_[node];
  for (std::uint32_t i = 0; i < from.closure_count; ++i) {
    const Open open = closures_[from.closure + i];
    const AutomatonState& state = automaton_.states[open.state];
    for (std::uint32_t e = state.bytes_begin; e < state.bytes_end; ++e) {
      const ByteEdge& edge = automaton_.byte_edges[e];
      if (edge.first <= byte && byte <= edge.last)
        items.push_back({edge.target, 0, 0, open.parent});
    }
    work_ += 1 + (state.bytes_end - state.bytes_begin) / 4;
  }
  const NodeId target = make(std::move(items));
  Node& left = nodes_[node];
  if (left.row == kNone) {
    left.row = static_cast<std::uint32_t>(transitions_.size());
    transitions_.resize(transitions_.size() + automaton_.class_count, kNone);
  }
  transitions_[left.row + byte_class] = target;
  return target;
}

NodeId StateStore::make(std::vector<Item> items) {
  normalize(items);
  return intern(items);
}

/// A state that can only return is its caller's states.
void StateStore::expand_returns(std::vector<Item>& items) const {
  const auto returns = [&](const Item& item) {
    return automaton_.is_loop(item.state) ? item.most == 0
                                          : automaton_.states[item.state].only_returns();
  };
  const std::size_t count = items.size();
  std::size_t kept = 0;
  std::vector<Item> callers;
  for (std::size_t i = 0; i < count; ++i) {
    if (returns(items[i])) {
      const auto more = this->items(items[i].parent);
      callers.insert(callers.end(), more.begin(), more.end());
    } else {
      items[kept++] = items[i];
    }
  }
  items.resize(kept);
  items.insert(items.end(), callers.begin(), callers.end());
}

void StateStore::normalize(std::vector<Item>& items) {
  expand_returns(items);
  if (items.size() < 2) return;
  work_ += items.size();
  // Overlapping and neighbouring counts under one caller.
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::tie(a.state, a.parent, a.least, a.most) <
           std::tie(b.state, b.parent, b.least, b.most);
  });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    Item& last = items[kept];
    const Item& item = items[i];
    const bool touches = last.most == kUnbounded || item.least <= last.most + 1;
    if (item.state == last.state && item.parent == last.parent && touches) {
      last.most = std::max(last.most, item.most);
    } else {
      items[++kept] = item;
    }
  }
  items.resize(kept + 1);
  // Different callers of one state.
  std::sort(items.begin(), items.end());
  kept = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    Item& last = items[kept];
    const Item item = items[i];
    if (std::tie(item.state, item.least, item.most) ==
        std::tie(last.state, last.least, last.most)) {
      // Where both together would be too much, the first alone is still right.
      const NodeId both = unite(last.parent, item.parent);
      if (both != kDead) last.parent = both;
    } else {
      items[++kept] = item;
    }
  }
  items.resize(kept + 1);
}

/// All items of both. Callers lie deeper, so the recursion ends at most kMostDepth calls down.
NodeId StateStore::unite(NodeId a, NodeId b) {
  if (a == b || b == kDead) return a;
  if (a == kDead) return b;
  const std::uint64_t key = std::uint64_t{std::min(a, b)} << 32 | std::max(a, b);
  if (const auto known = unions_.find(key); known != unions_.end()) return known->second;
  std::vector<Item> both(items(a).begin(), items(a).end());
  both.insert(both.end(), items(b).begin(), items(b).end());
  const NodeId made = make(std::move(both));
  unions_.emplace(key, made);
  return made;
}

NodeId StateStore::intern(const std::vector<Item>& items) {
  if (items.empty()) return kDead;
  bool fresh = false;
  const NodeId node = find_or_add(items, fresh);
  if (fresh) clamp(node);
  return node;
}

NodeId StateStore::find_or_add(const std::vector<Item>& items, bool& fresh) {
  if (items.size() > kMostItems) return kDead;
  std::uint64_t at = hash_of(items) & (index_.size() - 1);
  for (; index_[at] != kNone; at = (at + 1) & (index_.size() - 1)) {
    if (std::ranges::equal(this->items(index_[at]), items)) return index_[at];
  }
  std::uint32_t depth = 0;
  for (const Item& item : items)
    depth = std::max<std::uint32_t>(depth, nodes_[item.parent].depth + 1u);
  if (depth > kMostDepth) return kDead;
  if (bytes() > kMostBytes) {
    base::raise(ErrorKind::kUsage,
                "the grammar is too ambiguous to be followed: its places take more than {} MiB",
                kMostBytes >> 20);
  }
  fresh = true;
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node;
  node.items = static_cast<std::uint32_t>(items_.size());
  node.item_count = static_cast<std::uint32_t>(items.size());
  node.depth = static_cast<std::uint16_t>(depth);
  node.clamped = id;
  items_.insert(items_.end(), items.begin(), items.end());
  nodes_.push_back(node);
  index_[at] = id;
  if (2 * nodes_.size() > index_.size()) grow_index();
  return id;
}

void StateStore::grow_index() {
  index_.assign(2 * index_.size(), kNone);
  for (NodeId id = 1; id < nodes_.size(); ++id) {
    const auto own = items(id);
    std::uint64_t at = hash_of({own.begin(), own.end()}) & (index_.size() - 1);
    while (index_[at] != kNone) at = (at + 1) & (index_.size() - 1);
    index_[at] = id;
  }
}

void StateStore::clamp(NodeId node) {
  const auto own = items(node);
  std::vector<Item> clamped_items(own.begin(), own.end());
  bool changed = false;
  for (Item& item : clamped_items) {
    const Item before = item;
    item.parent = nodes_[item.parent].clamped;
    if (automaton_.is_loop(item.state)) {
      item.least = std::min(item.least, kExactCount + 1);
      if (item.most > kExactCount) item.most = kUnbounded;
    }
    changed = changed || item != before;
  }
  if (changed) nodes_[node].clamped = make(std::move(clamped_items));
}

void StateStore::keep_only(std::span<NodeId* const> roots) {
  // Parents have lower ids than the nodes that name them.
  std::vector<std::uint8_t> live(nodes_.size(), 0);
  for (const NodeId* root : roots) live[*root] = 1;
  for (std::size_t id = nodes_.size(); id-- > 0;) {
    if (live[id] == 0) continue;
    for (const Item& item : items(static_cast<NodeId>(id))) live[item.parent] = 1;
  }
  const std::vector<Node> old_nodes = std::move(nodes_);
  const std::vector<Item> old_items = std::move(items_);
  nodes_ = {};
  items_ = {};
  closures_ = {};
  transitions_ = {};
  reset();
  std::vector<NodeId> moved(old_nodes.size(), kDead);
  for (std::size_t id = 1; id < old_nodes.size(); ++id) {
    if (live[id] == 0) continue;
    const Node& node = old_nodes[id];
    std::vector<Item> copy(old_items.begin() + node.items,
                           old_items.begin() + node.items + node.item_count);
    for (Item& item : copy) item.parent = moved[item.parent];
    moved[id] = make(std::move(copy));
  }
  for (NodeId* root : roots) *root = moved[*root];
}

}  // namespace lemma::text::constraint
