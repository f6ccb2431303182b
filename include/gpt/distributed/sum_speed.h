// How fast the processes of this machine would sum, before there are any.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gpt::distributed {

// Bytes a second that each of so many processes sends while all of them sum float32 values that travel as `wire`, the additions included.
// Measured between threads of this process, over the loopback; takes about a second. Leaves the number of threads as it is, and draws from
// no random state. Throws gpt::Error(peer) where the system refuses connections, and gpt::Error(interrupted) after a signal.
double measure_sum_speed(int64_t processes, at::ScalarType wire);

}  // namespace gpt::distributed
