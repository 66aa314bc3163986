// SPDX-License-Identifier: Apache-2.0
#include "text/regex/program.hpp"

#include <algorithm>

#include "base/raise.hpp"

namespace lemma::text::regex {
namespace {

constexpr std::size_t kMostInstructions = 6000;
constexpr std::uint8_t kDeepestLook = 8;

/// Compiles back to front: each part is told where to go on.
class Compiler {
 public:
  Program run(const Syntax& syntax) {
    const std::uint32_t end = emit({});
    program_.start = compile(syntax, end);
    return std::move(program_);
  }

 private:
  std::uint32_t emit(Instruction instruction) {
    if (program_.code.size() >= kMostInstructions) {
      base::raise(ErrorKind::kUnsupported, "an expression takes more than {} instructions",
                  kMostInstructions);
    }
    instruction.depth = depth_;
    program_.code.push_back(instruction);
    return static_cast<std::uint32_t>(program_.code.size() - 1);
  }

  std::uint32_t set_index(const CharSet& set) {
    std::vector<CharSet>& sets = program_.sets;
    const auto found = std::find(sets.begin(), sets.end(), set);
    if (found != sets.end()) return static_cast<std::uint32_t>(found - sets.begin());
    sets.push_back(set);
    return static_cast<std::uint32_t>(sets.size() - 1);
  }

  std::uint32_t fork(std::uint32_t preferred, std::uint32_t other) {
    return emit({.op = Op::kFork, .next = preferred, .other = other});
  }

  std::uint32_t compile(const Syntax& node, std::uint32_t next) {
    switch (node.kind) {
      case SyntaxKind::kSet:
        return emit({.op = Op::kChar, .next = next, .set = set_index(node.set)});
      case SyntaxKind::kSequence:
        for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
          next = compile(*child, next);
        }
        return next;
      case SyntaxKind::kChoice: {
        std::uint32_t entry = compile(node.children.back(), next);
        for (std::size_t i = node.children.size() - 1; i-- > 0;) {
          const std::uint32_t branch = compile(node.children[i], next);
          entry = fork(branch, entry);
        }
        return entry;
      }
      case SyntaxKind::kRepeat:
        return repeat(node, next);
      case SyntaxKind::kLookAhead:
        return look(node.children[0], node.negated, next);
      case SyntaxKind::kPrevious:
        return emit({.op = Op::kPrevious,
                     .at_edge = node.at_edge,
                     .next = next,
                     .set = set_index(node.set)});
      case SyntaxKind::kEnd:
        return emit({.op = Op::kEnd, .next = next});
    }
    return next;
  }

  std::uint32_t look(const Syntax& inside, bool negated, std::uint32_t next) {
    if (depth_ == kDeepestLook) {
      base::raise(ErrorKind::kUnsupported, "an expression nests more than {} look-aheads",
                  kDeepestLook);
    }
    program_.deepest = std::max(program_.deepest, ++depth_);
    const std::uint32_t end = emit({});
    const std::uint32_t entry = compile(inside, end);
    --depth_;
    return emit({.op = Op::kLook, .negated = negated, .next = next, .other = entry});
  }

  std::uint32_t repeat(const Syntax& node, std::uint32_t next) {
    const Syntax& child = node.children[0];
    const bool lazy = node.greed == Greed::kLazy;
    // Possessive: what follows the run is no further member, so nothing could be given back.
    if (node.greed == Greed::kPossessive && node.most == kUnbounded) {
      next = look(child, true, next);
    }
    std::uint32_t entry = next;
    if (node.most == kUnbounded) {
      entry = fork(0, 0);
      const std::uint32_t body = compile(child, entry);
      program_.code[entry].next = lazy ? next : body;
      program_.code[entry].other = lazy ? body : next;
    } else {
      const std::uint32_t stop = node.greed == Greed::kPossessive ? look(child, true, next) : next;
      for (std::uint32_t i = node.least; i < node.most; ++i) {
        const std::uint32_t body = compile(child, entry);
        entry = lazy ? fork(stop, body) : fork(body, stop);
      }
    }
    for (std::uint32_t i = 0; i < node.least; ++i) entry = compile(child, entry);
    return entry;
  }

  Program program_;
  std::uint8_t depth_ = 0;
};

}  // namespace

Program compile(const Syntax& syntax) {
  return Compiler().run(syntax);
}

}  // namespace lemma::text::regex
