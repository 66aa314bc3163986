// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/matcher.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.hpp"

namespace lemma::text::constraint {
namespace {

/// By byte: its bits as eight flags.
const std::array<std::array<std::uint8_t, 8>, 256> kFlags = [] {
  std::array<std::array<std::uint8_t, 8>, 256> table{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    for (std::size_t bit = 0; bit < 8; ++bit)
      table[byte][bit] = static_cast<std::uint8_t>(byte >> bit & 1);
  }
  return table;
}();

void spread(const TokenBits& bits, std::size_t count, std::span<std::uint8_t> flags) {
  const std::size_t whole = count / 8;
  for (std::size_t i = 0; i < whole; ++i)
    std::copy_n(kFlags[bits[i / 8] >> (8 * (i % 8)) & 0xff].data(), 8, flags.data() + 8 * i);
  for (std::size_t i = 8 * whole; i < count; ++i)
    flags[i] = static_cast<std::uint8_t>(bits[i / 64] >> (i % 64) & 1);
  std::fill(flags.begin() + static_cast<std::ptrdiff_t>(count), flags.end(), std::uint8_t{0});
}

}  // namespace

Program::Program(const Grammar& grammar, std::shared_ptr<const TokenTrie> trie)
    : trie_(std::move(trie)), automaton_(Automaton::compile(grammar)), maker_(automaton_, *trie_) {}

std::size_t Program::bytes() const {
  const std::lock_guard lock(mutex_);
  return automaton_.bytes() + maker_.bytes();
}

Matcher::Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const Tokenizer> tokenizer,
                 Beginning beginning)
    : program_(std::move(program)),
      tokenizer_(std::move(tokenizer)),
      beginning_(std::move(beginning)),
      phase_(!beginning_.after.empty()      ? Phase::kBefore
             : !beginning_.triggers.empty() ? Phase::kUntriggered
                                            : Phase::kConstrained) {
  const std::lock_guard lock(program_->mutex_);
  node_ = program_->maker_.store().start();
  program_->matchers_.push_back(this);
}

Matcher::~Matcher() {
  const std::lock_guard lock(program_->mutex_);
  std::erase(program_->matchers_, this);
}

bool Matcher::mask(TokenBits& bits) {
  const TokenTrie& trie = program_->trie();
  if (is_free()) {
    bits.assign((trie.vocabulary_size() + 63) / 64, ~std::uint64_t{0});
    for (std::size_t i = trie.vocabulary_size(); i < 64 * bits.size(); ++i)
      set_bit(bits, static_cast<TokenId>(i), false);
    if (phase_ == Phase::kBefore) {
      for (const TokenId end : trie.ends()) set_bit(bits, end, false);
    }
    return true;
  }
  const std::lock_guard lock(program_->mutex_);
  MaskMaker& maker = program_->maker_;
  std::vector<NodeId*> roots;
  for (Matcher* matcher : program_->matchers_) roots.push_back(&matcher->node_);
  maker.tidy(roots);
  maker.fill(node_, bits);
  if (maker.store().may_end(node_)) {
    for (const TokenId end : trie.ends()) set_bit(bits, end);
  }
  return std::any_of(bits.begin(), bits.end(), [](std::uint64_t word) { return word != 0; });
}

bool Matcher::mask(std::span<std::uint8_t> allowed) {
  LEMMA_CHECK(allowed.size() >= program_->trie().vocabulary_size());
  const bool any = mask(bits_);
  spread(bits_, program_->trie().vocabulary_size(), allowed);
  return any;
}

std::string Matcher::text_of(TokenId id) const {
  if (is_free() && tokenizer_) return tokenizer_->piece(id, true);
  return std::string(program_->trie().text(id));
}

/// In `place`, which is untriggered, moves on to the constrained text if a trigger is complete;
/// `rest` is then what belongs to it.
void Matcher::look_for_triggers(Place& place, std::string_view& rest) const {
  std::string text = place.tail + std::string(rest);
  std::size_t first = std::string::npos;
  std::size_t longest = 0;
  for (const std::string& trigger : beginning_.triggers) {
    first = std::min(first, text.find(trigger));
    longest = std::max(longest, trigger.size());
  }
  if (first == std::string::npos) {
    place.tail = text.substr(text.size() - std::min(text.size(), longest - 1));
    rest = {};
    return;
  }
  place.phase = Phase::kConstrained;
  place.tail = text.substr(first);
  rest = place.tail;
}

/// The place behind `text`, or nothing if it may not come. Under the program's mutex.
std::optional<Matcher::Place> Matcher::after(std::string_view text) {
  Place place = {phase_, node_, tail_};
  std::string joined;
  if (place.phase == Phase::kBefore) {
    joined = place.tail + std::string(text);
    const std::size_t at = joined.find(beginning_.after);
    if (at == std::string::npos) {
      place.tail =
          joined.substr(joined.size() - std::min(joined.size(), beginning_.after.size() - 1));
      return place;
    }
    text = std::string_view(joined).substr(at + beginning_.after.size());
    place.tail.clear();
    place.phase = beginning_.triggers.empty() ? Phase::kConstrained : Phase::kUntriggered;
  }
  if (place.phase == Phase::kUntriggered) look_for_triggers(place, text);
  if (place.phase == Phase::kConstrained) {
    MaskMaker& maker = program_->maker_;
    maker.store().start_work();
    place.node = maker.follow(place.node, text);
    if (place.node == StateStore::kDead) return std::nullopt;
    place.tail.clear();
  }
  return place;
}

bool Matcher::take(std::string_view text) {
  const std::lock_guard lock(program_->mutex_);
  std::optional<Place> place = after(text);
  if (!place) return false;
  phase_ = place->phase;
  node_ = place->node;
  tail_ = std::move(place->tail);
  return true;
}

bool Matcher::fits(TokenId id) {
  if (program_->trie().is_end(id)) return phase_ != Phase::kBefore && may_end();
  const std::string text = text_of(id);
  if (text.empty() && !is_free()) return false;
  const std::lock_guard lock(program_->mutex_);
  return after(text).has_value();
}

bool Matcher::take(TokenId id) {
  if (program_->trie().is_end(id)) return phase_ != Phase::kBefore && may_end();
  const std::string text = text_of(id);
  if (text.empty() && !is_free()) return false;
  return take(std::string_view(text));
}

bool Matcher::may_end() {
  if (phase_ != Phase::kConstrained) return phase_ == Phase::kUntriggered;
  const std::lock_guard lock(program_->mutex_);
  return program_->maker_.store().may_end(node_);
}

bool Matcher::finished() {
  if (is_free()) return false;
  const std::lock_guard lock(program_->mutex_);
  const auto items = program_->maker_.store().items(node_);
  return items.size() == 1 && items.front().state == Automaton::kFinished;
}

}  // namespace lemma::text::constraint
