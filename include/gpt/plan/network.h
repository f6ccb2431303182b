// How long processes take to send something to each other, by the alpha-beta model (Hockney, 1994): each message takes a latency, and its
// bytes go over a bandwidth.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "gpt/config/distributed_config.h"
#include "gpt/device/device.h"

namespace gpt::plan {

struct Link {
  double latency = 0;                                                 // seconds of a message
  double bytes_per_second = std::numeric_limits<double>::infinity();  // sent, while as much arrives

  // The time of so many messages, one after the other, which have so many bytes together.
  double seconds(double messages, double bytes) const { return messages * latency + bytes / bytes_per_second; }
};

// How the processes of a run are joined.
struct Network {
  int64_t of_machine = 1;    // processes on each machine
  Link within = {};          // of each process to the others of its machine
  Link between = {};         // of a machine to the others; its processes share the bandwidth
  bool takes_turns = false;  // a connection between two processes carries bytes one way at a time, as Gloo's do
  Link cores = {};           // what sending takes of the cores, where these compute too, whatever the link is
  std::string source = {};   // of what counts within a machine: "measured over the loopback"
};

// The cards of a machine, joined as their data sheet says. A machine has so many of them.
Network join_cards(const device::DeviceInfo& gpu, int64_t of_machine);
// Processes on a CPU, where every byte within a machine goes through the cores. `cores`: as measured over the loopback.
Network join_cpus(const Link& cores, int64_t of_machine);
// The same, measured now (distributed/sum_speed.h), with gradients that travel so.
Network measure_cpus(int64_t of_machine, ReduceDtype dtype);

// A link between machines, as a network's data sheet says it: bits a second of a machine, of which headers take a part.
Link link_between(double latency, double bits_per_second);

// Processes that send to each other, and how many of them are on each of their machines.
struct Members {
  int64_t all = 1, of_machine = 1;
};

// Time that sending takes, side by side: on the wires, where computing goes on meanwhile, and of the cores that would compute.
struct SendingTime {
  double wires = 0, cores = 0;
};
inline SendingTime operator+(const SendingTime& a, const SendingTime& b) {
  return {a.wires + b.wires, a.cores + b.cores};
}

// Times of what distributed/ does with a tensor of so many bytes. In an exchange every process gets its part of the tensor from each of the
// others, in a message of its own, of which several are on their way at the same time. In a gather parts go round in a ring, which enters
// and leaves each machine once, one message after the other. A sum is both.
SendingTime time_of_exchange(double bytes, const Members& members, const Network& network);
SendingTime time_of_gather(double bytes, const Members& members, const Network& network);
SendingTime time_of_sum(double bytes, const Members& members, const Network& network);

}  // namespace gpt::plan
