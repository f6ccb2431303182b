// Where processors are: which are hyper-threads of one core, and which share memory that is nearer to them (a NUMA node).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

struct Processor {
  int64_t id = 0;    // as the system numbers them
  int64_t core = 0;  // the id of the first processor of its core
  int64_t node = 0;
  bool operator==(const Processor&) const = default;
};

// The numbers of those that the calling thread may run on (taskset, a cpuset, a launcher).
std::vector<int64_t> processors_of_mask();

// Processors in the order of their nodes, cores and numbers, as /sys describes them. Where it says nothing, each is a core, and all are in
// one node. `root` stands for / in a test.
std::vector<Processor> describe_processors(const std::vector<int64_t>& ids, const std::string& root = "");

int64_t count_cores(const std::vector<Processor>& processors);
int64_t count_nodes(const std::vector<Processor>& processors);

// The processors of the nodes that process `rank` of `processes` on this machine is to keep to, so that its memory is near it: as many whole
// nodes for each process, or where there are more processes than nodes, as many processes in each node. All of them where neither comes out
// even.
std::vector<Processor> nodes_of_process(const std::vector<Processor>& processors, int64_t rank, int64_t processes);

// The calling thread, and all that it starts from now on, run on these alone. False: the system does not allow it.
bool run_on(const std::vector<Processor>& processors);

}  // namespace gpt
