#include "gpt/plan/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpt/device/cards.h"
#include "gpt/distributed/sum_speed.h"

namespace gpt::plan {
namespace {

// Sums of all GPUs of a machine reach three quarters of NVLink and more in what NVIDIA publishes of NCCL; PCIe without copies between
// the cards is further from its data sheet.
constexpr double kShareOfLink = 0.6;
// Headers of Ethernet, IP and TCP take a twentieth of packets of 1,500 bytes.
constexpr double kShareOfNetwork = 0.95;
// Latencies of a message in a ring, as NCCL counts on them (src/graph/tuning.cc, protocol "Simple").
constexpr double kNvlinkLatency = 3.4e-6, kPcieLatency = 5.7e-6;

// Messages one after the other, and their bytes.
struct Load {
  double messages, bytes;
};

double processes_near(const Members& members) { return static_cast<double>(std::min(members.all, members.of_machine)); }

// Two collectives are under way most of the time (distributed/sums.cpp), with so many connections each. What is the part of the time in
// which a way is used, where each of these connections uses one of the two ways by chance?
double share_of_both_ways(double connections) { return 1 - std::exp2(-2 * connections); }

// A process has one message after the other; the bytes of both links are on their way at the same time. Its cores see all of them, which
// are a part of the tensor from each of the others.
SendingTime time_of(double bytes, const Load& within, const Load& between, const Members& members,
                    const Network& network) {
  const double others = static_cast<double>(members.all - 1);
  const double speed = network.between.bytes_per_second * (network.takes_turns ? share_of_both_ways(others) : 1);
  return {.wires = network.within.seconds(within.messages, 0) + network.between.seconds(between.messages, 0) +
                   std::max(network.within.seconds(0, within.bytes), between.bytes / speed),
          .cores = network.cores.seconds(others, bytes * others / static_cast<double>(members.all))};
}

// Rounds of messages that do not wait for each other. NCCL has so many at once (NCCL_MAX_DEV_WORK_P2P_PER_BATCH in its device.h).
double rounds_of(double messages) {
  constexpr double kAtOnce = 8;
  return std::ceil(messages / kAtOnce);
}

}  // namespace

Network join_cards(const device::DeviceInfo& gpu, int64_t of_machine) {
  const device::CardLink link = device::link_of(gpu);
  const bool is_nvlink = link.name.starts_with("NVLink");
  return {.of_machine = of_machine,
          .within = {is_nvlink ? kNvlinkLatency : kPcieLatency, kShareOfLink * link.bandwidth * 1e9},
          .between = {},
          .cores = {},
          .source = fmt::format("computed, not measured: {:.0f} % of the {:g} GB/s of {}", 100 * kShareOfLink,
                                link.bandwidth, link.name)};
}

Network join_cpus(const Link& cores, int64_t of_machine) {
  return {.of_machine = of_machine,
          .within = {},
          .between = {},
          .takes_turns = true,
          .cores = cores,
          .source = "measured over the loopback"};
}

Network measure_cpus(int64_t of_machine, ReduceDtype dtype) {
  const auto [latency, bytes_per_second] =
      distributed::measure_sum_speed(std::max<int64_t>(2, of_machine),
                                     dtype == ReduceDtype::bfloat16 ? at::kBFloat16 : at::kFloat);
  return join_cpus({latency, bytes_per_second}, of_machine);
}

Link link_between(double latency, double bits_per_second) { return {latency, kShareOfNetwork * bits_per_second / 8}; }

// From each process an equal part goes to each other one. All processes of a machine send over its link to others at the same time.
SendingTime time_of_exchange(double bytes, const Members& members, const Network& network) {
  const double near = processes_near(members), far = static_cast<double>(members.all) - near,
               part = bytes / static_cast<double>(members.all);
  return time_of(bytes, {rounds_of(near - 1), (near - 1) * part},
                 {rounds_of(far), static_cast<double>(network.of_machine) * far * part}, members, network);
}

// Into each machine goes what its processes do not have, once; other groups of the machine use its link as well.
SendingTime time_of_gather(double bytes, const Members& members, const Network& network) {
  const double near = processes_near(members), all = static_cast<double>(members.all),
               machines = std::ceil(all / static_cast<double>(members.of_machine)),
               groups = static_cast<double>(network.of_machine) / near;
  return time_of(bytes, {all - machines, near > 1 ? bytes * (all - 1) / all : 0},
                 {machines - 1, groups * bytes * (machines - 1) / machines}, members, network);
}

SendingTime time_of_sum(double bytes, const Members& members, const Network& network) {
  return time_of_exchange(bytes, members, network) + time_of_gather(bytes, members, network);
}

}  // namespace gpt::plan
