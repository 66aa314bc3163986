// SPDX-License-Identifier: Apache-2.0
#include "base/control_groups.hpp"

#include <fstream>
#include <string>

namespace lemma::base {
namespace {

namespace fs = std::filesystem;

/// From `own` (as in "/a/b") up to the hierarchy's root.
void visit_upwards(const fs::path& hierarchy, const fs::path& own,
                   FunctionRef<void(const fs::path&)> visit) {
  for (fs::path path = own.relative_path();; path = path.parent_path()) {
    visit(path.empty() ? hierarchy : hierarchy / path);
    if (path.empty()) return;
  }
}

}  // namespace

void visit_control_groups(const fs::path& hierarchies, const fs::path& own,
                          std::string_view controller, FunctionRef<void(const fs::path&)> visit) {
  const fs::path version1 = hierarchies / controller;
  // Inside a container the group's own path may not exist below the mount; the root then holds it.
  visit_upwards(hierarchies, "/", visit);
  visit_upwards(version1, "/", visit);
  std::ifstream in(own);
  for (std::string line; std::getline(in, line);) {  // "0::/path" or "4:cpu,cpuacct:/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = line.substr(second + 1);
    if (controllers == ",,") visit_upwards(hierarchies, path, visit);
    if (controllers.find("," + std::string(controller) + ",") != std::string::npos)
      visit_upwards(version1, path, visit);
  }
}

}  // namespace lemma::base
