// SPDX-License-Identifier: Apache-2.0
// Where the limits of this process's control groups stand in the file system, for versions 1 and 2:
// every group that holds the process, up to the root of its hierarchy.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/function_ref.hpp"

namespace lemma::base {

/// Calls visit(folder) for each group above the process that may limit what `controller` ("cpu",
/// "memory") rules; a folder may come more than once, or not exist. `hierarchies` is what
/// /sys/fs/cgroup is on a machine, `own` what /proc/self/cgroup is.
void visit_control_groups(const std::filesystem::path& hierarchies,
                          const std::filesystem::path& own, std::string_view controller,
                          FunctionRef<void(const std::filesystem::path&)> visit);

}  // namespace lemma::base
