// SPDX-License-Identifier: Apache-2.0
// RowStream: the rows of one model's sites on their way to a comparison with another model's. One
// side runs its step on a thread of its own and publishes the rows of every site as it comes by
// them; the other asks for them in the order in which it needs them, and says when it is done with
// a site. The publisher waits while more is held than a budget, unless someone waits for a row that
// has not come yet; so memory does not grow with the depth of a model, and no order of sites can
// bring both to a stop.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.hpp"

namespace lemma::eval {

/// Rows [rows of the step, width] by Tensor::id.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// Waits for them; empty where the step ended without.
  virtual std::span<const float> rows(std::int32_t tensor) = 0;
};

class RowStream final : public backend::Observer, public RowSource {
 public:
  /// Takes the tensors that `wanted` says, by id, and holds about `budget` bytes of them.
  RowStream(const backend::Program& program, std::vector<bool> wanted, std::size_t budget);

  /// Before a step, on neither side's thread.
  void begin();
  /// The publisher's step is over, well or not: nobody waits for rows any more.
  void end();
  /// The other side's step is over: rows that still come are not kept.
  void close();

  bool wants(const backend::Program::Site& site) override;
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override;

  /// The span lives until drop().
  std::span<const float> rows(std::int32_t tensor) override;
  /// The tensor is no longer needed in this step.
  void drop(std::int32_t tensor);

  /// The most bytes that were held at once.
  std::size_t most_held() const noexcept { return most_held_; }

 private:
  const backend::Program& program_;
  const std::vector<bool> wanted_;
  const std::size_t budget_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex. A vector of rows is written once, before its flag is set.
  std::vector<std::vector<float>> rows_;
  enum class Fate : std::uint8_t { kAwaited, kHeld, kDropped };
  std::vector<Fate> fates_;
  std::size_t held_ = 0, most_held_ = 0;
  bool ended_ = true, closed_ = true;
  std::int32_t awaited_ = -1;  ///< the tensor that the other side waits for
};

}  // namespace lemma::eval
