// SPDX-License-Identifier: Apache-2.0
// Progress: how long work (loading, repacking, a long prefill) tells its caller how far it is.
// `what` names the work in a few words; `fraction` rises from 0 to 1 and reaches 1 once at the end.
// Called on the thread that does the work, at most a few hundred times; the callee should return
// quickly and may throw to abandon the work. An empty function means that nobody listens.
#pragma once

#include <functional>
#include <string_view>

namespace lemma::base {

using Progress = std::function<void(std::string_view what, double fraction)>;

}  // namespace lemma::base
