#include "gpt/core/control_groups.h"

#include <fmt/format.h>

#include <fstream>

namespace gpt {

namespace fs = std::filesystem;

std::vector<fs::path> control_groups(std::string_view controller, const std::string& root) {
  std::vector<fs::path> groups;
  const auto walk_up = [&groups](const fs::path& hierarchy, fs::path group) {
    for (;; group = group.parent_path()) {
      groups.push_back(hierarchy / group);
      if (group.empty()) return;
    }
  };
  const std::string wanted = fmt::format(",{},", controller);
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "0::/group" (version 2) or "4:cpu,cpuacct:/group" (version 1)
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = fs::path(line.substr(second + 1)).relative_path();
    if (controllers.empty()) {
      walk_up(root + "/sys/fs/cgroup", group);
    } else if (("," + controllers + ",").find(wanted) != std::string::npos) {
      walk_up(root + "/sys/fs/cgroup/" + controllers, group);
    }
  }
  return groups;
}

}  // namespace gpt
