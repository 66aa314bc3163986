// SPDX-License-Identifier: Apache-2.0
// Draft files: a draft block that came in a file of its own. Two forms exist: a file of the model's
// architecture whose blocks behind the last layer are blk.N.* (its other tensors are the model's
// own and not looked at), and the support file of DeepSeek V4, whose one block is mtp.0.*.
#pragma once

#include <memory>

#include "weights/checkpoint.hpp"

namespace lemma::model {

/// `model` with the draft blocks of `draft` behind its layers, as if they had come in one file.
/// Throws kUnsupported where they do not fit together, naming what differs (architecture, a key,
/// width, vocabulary), where the model has draft blocks already, and where the file has none.
std::unique_ptr<const weights::Checkpoint> join_draft(
    std::unique_ptr<const weights::Checkpoint> model,
    std::unique_ptr<const weights::Checkpoint> draft);

}  // namespace lemma::model
