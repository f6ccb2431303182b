// How fast the processes of this machine would sum, before there are any.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gpt::distributed {

// The speed of a sum of n processes, in which each sends 2 (n - 1) messages, one after the other.
struct SumSpeed {
  double latency = 0;           // seconds of a message, however short
  double bytes_per_second = 0;  // that each process sends in longer ones, the additions included
};

// While so many processes, all of them, sum float32 values that travel as `wire`. Measured between threads of this process, over the
// loopback; takes about a second. Leaves the number of threads as it is, and draws from no random state. Throws gpt::Error(peer) where the
// system refuses connections, and gpt::Error(interrupted) after a signal.
SumSpeed measure_sum_speed(int64_t processes, at::ScalarType wire);

// What follows from the seconds of a sum that sends next to nothing, and of `sums` others that send so many bytes together.
SumSpeed sum_speed_from(double seconds_of_short, double seconds_of_long, int64_t sums, double bytes_sent,
                        int64_t processes);

}  // namespace gpt::distributed
