// TCP: addresses that names stand for, and sockets that listen.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>

namespace gpt {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// At least one. `type`: SOCK_STREAM or SOCK_DGRAM. Throws gpt::Error(peer).
Addresses resolve_address(const std::string& host, uint16_t port, int type);

struct ListeningSocket {
  int fd = -1;  // is not inherited
  uint16_t port = 0;
};

// At the first address of a host; port 0: at a free one. Throws gpt::Error(peer).
ListeningSocket listen_at(const std::string& host, uint16_t port = 0);

}  // namespace gpt
