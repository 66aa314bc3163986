// SPDX-License-Identifier: Apache-2.0
// The reference backend: every operation through src/algorithm, one row at a time, in f32 on one
// thread. Slow, obvious and always right: the oracle that other backends are held to. It fuses
// nothing and decodes a weight row each time it is used.
#pragma once

#include <memory>

#include "backend/backend.hpp"

namespace lemma::reference {

std::unique_ptr<backend::Backend> make_backend();

}  // namespace lemma::reference
