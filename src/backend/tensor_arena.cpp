// SPDX-License-Identifier: Apache-2.0
#include "backend/tensor_arena.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/overloaded.hpp"

namespace lemma::backend {
namespace {

using base::Overloaded;

std::vector<Tensor> present(std::initializer_list<Tensor> tensors) {
  std::vector<Tensor> result;
  for (const Tensor tensor : tensors)
    if (tensor) result.push_back(tensor);
  return result;
}

}  // namespace

std::vector<Tensor> inputs(const Operation& operation) {
  return std::visit(Overloaded{
                        [](const Embed&) { return present({}); },
                        [](const Receive&) { return present({}); },
                        [](const Attend& op) {
                          return present({op.query, op.selection});
                        },
                        [](const AttendLatent& op) {
                          return present({op.query, op.selection});
                        },
                        [](const AttendCompressed& op) {
                          return present({op.query, op.selection});
                        },
                        [](const Select& op) {
                          return present({op.query, op.weights});
                        },
                        [](const Compress& op) {
                          return present({op.value, op.gate});
                        },
                        [](const Recur& op) {
                          std::vector<Tensor> read = op.channels;
                          read.insert(read.end(), {op.decay, op.beta, op.gate});
                          return read;
                        },
                        [](const Gate& op) {
                          return present({op.in, op.gate});
                        },
                        [](const Activate& op) {
                          return present({op.gate, op.up});
                        },
                        [](const Route& op) { return present({op.logits}); },
                        [](const Experts& op) {
                          return present({op.in, op.ids, op.weights});
                        },
                        [](const Add& op) {
                          return present({op.a, op.b});
                        },
                        [](const StreamsWrite& op) {
                          return present({op.in, op.coefficients, op.branch});
                        },
                        [](const MixResidual& op) {
                          std::vector<Tensor> read = op.blocks;
                          read.push_back(op.current);
                          return read;
                        },
                        [](const auto& op) { return present({op.in}); },
                    },
                    operation);
}

std::vector<Tensor> outputs(const Operation& operation) {
  return std::visit(Overloaded{
                        [](const Project& op) {
                          std::vector<Tensor> result;
                          for (const auto& output : op.outputs) result.push_back(output.out);
                          return result;
                        },
                        [](const Store&) { return present({}); },
                        [](const Compress&) { return present({}); },
                        [](const Route& op) {
                          return present({op.ids, op.weights});
                        },
                        [](const StreamsRead& op) {
                          return present({op.out, op.coefficients});
                        },
                        [](const Head&) { return present({}); },
                        [](const Mlp& op) {
                          return present({op.out, op.hidden});
                        },
                        [](const Experts& op) {
                          return present({op.out, op.hidden});
                        },
                        [](const auto& op) { return present({op.out}); },
                    },
                    operation);
}

TensorArena::TensorArena(const Program& program, std::uint32_t max_rows,
                         std::span<const std::size_t> until) {
  const std::size_t count = program.tensors.size(), steps = program.operations.size();
  std::vector<std::size_t> last_use(count, steps);
  for (std::size_t i = 0; i < steps; ++i)
    for (const auto& touched : {inputs(program.operations[i]), outputs(program.operations[i])})
      for (const Tensor t : touched) last_use[t.id] = until.empty() ? i : until[i];
  if (program.hidden) last_use[program.hidden.id] = steps;
  std::vector<std::vector<std::int32_t>> ends(steps + 1);
  for (std::size_t id = 0; id < count; ++id)
    ends[last_use[id]].push_back(static_cast<std::int32_t>(id));

  // Walk the program once: a tensor takes a free block of at least its width or a new one, and
  // gives it back after its last use. Blocks are sized at the end.
  struct Block {
    std::uint32_t width;
    bool free;
  };
  std::vector<Block> blocks;
  std::vector<std::size_t> block_of(count, 0);
  for (std::size_t i = 0; i < steps; ++i) {
    for (const Tensor t : outputs(program.operations[i])) {
      auto best = blocks.end();
      for (auto it = blocks.begin(); it != blocks.end(); ++it)
        if (it->free && it->width >= t.width && (best == blocks.end() || it->width < best->width))
          best = it;
      if (best == blocks.end()) best = blocks.insert(blocks.end(), {t.width, true});
      best->free = false;
      block_of[t.id] = static_cast<std::size_t>(best - blocks.begin());
    }
    for (const std::int32_t id : ends[i]) blocks[block_of[id]].free = true;
  }

  buffers_.reserve(blocks.size());
  for (const Block& block : blocks) {
    const std::size_t bytes = std::size_t{max_rows} * block.width * sizeof(float);
    buffers_.push_back(base::AlignedBuffer::uninitialized(bytes));
    bytes_ += bytes;
  }
  data_.reserve(count);
  for (std::size_t id = 0; id < count; ++id)
    data_.push_back(blocks.empty() ? nullptr
                                   : reinterpret_cast<float*>(buffers_[block_of[id]].data()));
}

}  // namespace lemma::backend
