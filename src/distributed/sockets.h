// Connections between the processes of a run. Functions throw gpt::Error(peer) where the system refuses one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/distributed/ranks.h"

namespace gpt::distributed {

inline constexpr const char* kLoopback = "127.0.0.1";

// Throws gpt::Error(interrupted) after a signal.
int connect_to(const std::string& address, uint16_t port);

// The addresses under which the other processes reach this one: those of the interfaces that GLOO_SOCKET_IFNAME lists, otherwise that of the
// loopback where all are on one machine, or of the interface that leads to where they meet, or of the first that is up.
std::vector<std::string> own_addresses(const Ranks& ranks);

// Throws gpt::Error(peer) where the loopback is down, or so many processes need more descriptors than this one may open.
void require_connections(const Ranks& ranks);

// From here on a signal is not waited for any longer: throws gpt::Error(interrupted) if there was one.
void leave_if_stopped();

}  // namespace gpt::distributed
