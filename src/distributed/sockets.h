// Connections between the processes of a run. Functions throw gpt::Error(peer) where the system refuses one.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/distributed/ranks.h"

namespace gpt::distributed {

inline constexpr const char* kLoopback = "127.0.0.1";

int connect_to(const std::string& address, uint16_t port);

// The address under which the other processes reach this one: that of the loopback where all are on one machine, otherwise that of the
// interface that GLOO_SOCKET_IFNAME names, or of the one that leads to where they meet, or of the first that is up.
std::string own_address(const Ranks& ranks);

}  // namespace gpt::distributed
