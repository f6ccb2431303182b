#include "gpt/core/cpu_topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

namespace gpt {
namespace {

// "0-3,8" as the kernel writes it; of what is no such list, what comes before the fault.
std::vector<int64_t> read_list(const std::string& path) {
  constexpr int64_t kMost = 1 << 16;
  std::vector<int64_t> ids;
  std::ifstream in(path);
  for (std::string range; std::getline(in, range, ',');) {
    std::istringstream text(range);
    int64_t first = 0, last = 0;
    char dash = 0;
    if (!(text >> first)) break;
    if (!(text >> dash >> last) || dash != '-') last = first;
    for (int64_t id = first; id <= std::min(last, kMost); ++id) ids.push_back(id);
  }
  return ids;
}

std::map<int64_t, int64_t> nodes_by_processor(const std::string& root) {
  std::map<int64_t, int64_t> nodes;
  const std::string folder = root + "/sys/devices/system/node/";
  for (const int64_t node : read_list(folder + "online"))
    for (const int64_t id : read_list(fmt::format("{}node{}/cpulist", folder, node))) nodes[id] = node;
  return nodes;
}

int64_t count_distinct(const std::vector<Processor>& processors, int64_t Processor::* key) {
  std::set<int64_t> found;
  for (const Processor& processor : processors) found.insert(processor.*key);
  return std::ssize(found);
}

}  // namespace

std::vector<int64_t> processors_of_mask() {
  constexpr size_t kMost = 1 << 16;
  std::vector<int64_t> ids;
  for (size_t capacity = CPU_SETSIZE; capacity <= kMost; capacity *= 2) {  // too small for the machine: EINVAL
    std::vector<cpu_set_t> set(capacity / CPU_SETSIZE);
    const size_t bytes = set.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, set.data()) != 0) continue;
    for (size_t id = 0; id < capacity; ++id)
      if (CPU_ISSET_S(id, bytes, set.data())) ids.push_back(static_cast<int64_t>(id));
    return ids;
  }
  for (int64_t id = 0; id < std::max(1U, std::thread::hardware_concurrency()); ++id) ids.push_back(id);
  return ids;
}

std::vector<Processor> describe_processors(const std::vector<int64_t>& ids, const std::string& root) {
  const std::map<int64_t, int64_t> nodes = nodes_by_processor(root);
  std::vector<Processor> processors;
  for (const int64_t id : ids) {
    const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/", root, id);
    std::vector<int64_t> core = read_list(folder + "core_cpus_list");
    if (core.empty()) core = read_list(folder + "thread_siblings_list");  // before Linux 5.3
    const auto node = nodes.find(id);
    processors.push_back({id, core.empty() ? id : core.front(), node == nodes.end() ? 0 : node->second});
  }
  std::sort(processors.begin(), processors.end(), [](const Processor& a, const Processor& b) {
    return std::tie(a.node, a.core, a.id) < std::tie(b.node, b.core, b.id);
  });
  return processors;
}

int64_t count_cores(const std::vector<Processor>& processors) { return count_distinct(processors, &Processor::core); }
int64_t count_nodes(const std::vector<Processor>& processors) { return count_distinct(processors, &Processor::node); }

std::vector<Processor> nodes_of_process(const std::vector<Processor>& processors, int64_t rank, int64_t processes) {
  std::set<int64_t> all;
  for (const Processor& processor : processors) all.insert(processor.node);
  const std::vector<int64_t> nodes(all.begin(), all.end());
  const int64_t count = std::ssize(nodes);
  if (count % processes != 0 && processes % count != 0) return processors;
  const int64_t first = rank * count / processes, end = first + std::max<int64_t>(1, count / processes);
  std::vector<Processor> own;
  for (const Processor& processor : processors)
    if (processor.node >= nodes[first] && processor.node <= nodes[end - 1]) own.push_back(processor);
  return own;
}

bool run_on(const std::vector<Processor>& processors) {
  int64_t last = 0;
  for (const Processor& processor : processors) last = std::max(last, processor.id);
  std::vector<cpu_set_t> set(last / CPU_SETSIZE + 1);
  const size_t bytes = set.size() * sizeof(cpu_set_t);
  for (const Processor& processor : processors) CPU_SET_S(processor.id, bytes, set.data());
  return sched_setaffinity(0, bytes, set.data()) == 0;
}

}  // namespace gpt
