#include "gpt/core/sockets.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "gpt/core/error.h"

namespace gpt {

Addresses resolve_address(const std::string& host, uint16_t port, int type) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    throw Error(ExitCode::peer, fmt::format("cannot find the address '{}': {}", host, gai_strerror(error)));
  return {found, freeaddrinfo};
}

ListeningSocket listen_at(const std::string& host, uint16_t port) {
  const Addresses found = resolve_address(host, port, SOCK_STREAM);
  ListeningSocket listener{socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int on = 1;  // a port whose last connections have just ended is free
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* const at = reinterpret_cast<sockaddr*>(&own);
  if (listener.fd < 0 || setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(listener.fd, found->ai_addr, found->ai_addrlen) != 0 || listen(listener.fd, SOMAXCONN) != 0 ||
      getsockname(listener.fd, at, &length) != 0) {
    const int error = errno;
    if (listener.fd >= 0) close(listener.fd);
    throw Error(ExitCode::peer,
                fmt::format("cannot listen at {}, port {}: {}", host, port, std::generic_category().message(error)));
  }
  listener.port = ntohs(at->sa_family == AF_INET ? reinterpret_cast<sockaddr_in*>(at)->sin_port
                                                 : reinterpret_cast<sockaddr_in6*>(at)->sin6_port);
  return listener;
}

}  // namespace gpt
