#include "sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>

#include "gpt/core/error.h"
#include "gpt/core/sockets.h"

namespace gpt::distributed {
namespace {

[[noreturn]] void fail_socket(const std::string& what, int number) {
  throw Error(ExitCode::peer, fmt::format("cannot {}: {}", what, std::generic_category().message(number)));
}

std::string numeric(const sockaddr* address) {
  char text[NI_MAXHOST] = {};
  const socklen_t length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

// Nothing is sent: the system only chooses the interface.
std::string address_towards(const std::string& address, uint16_t port) {
  const Addresses found = resolve_address(address, port, SOCK_DGRAM);
  for (const addrinfo* at = found.get(); at; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    const bool is_known = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
                          getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
    if (fd >= 0) close(fd);
    if (is_known) return numeric(reinterpret_cast<sockaddr*>(&own));
  }
  fail_socket(fmt::format("reach {}", address), errno);
}

// Of the interface of that name; without a name, of the first that is up and not the loopback. IPv4 first.
std::string address_of_interface(const char* name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) fail_socket("list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = all; at; at = at->ifa_next) {
      if (!at->ifa_addr || at->ifa_addr->sa_family != family || !(at->ifa_flags & IFF_UP)) continue;
      const bool is_meant = name ? std::strcmp(at->ifa_name, name) == 0 : !(at->ifa_flags & IFF_LOOPBACK);
      if (is_meant) return numeric(at->ifa_addr);
    }
  }
  if (!name) return kLoopback;
  throw Error(ExitCode::config,
              fmt::format("GLOO_SOCKET_IFNAME names the network interface '{}', which has no address here", name));
}

}  // namespace

int connect_to(const std::string& address, uint16_t port) {
  const Addresses found = resolve_address(address, port, SOCK_STREAM);
  for (const addrinfo* at = found.get(); at; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0) return fd;
    const int number = errno;
    if (fd >= 0) close(fd);
    if (!at->ai_next) fail_socket(fmt::format("connect to {}:{}", address, port), number);
  }
  fail_socket(fmt::format("connect to {}:{}", address, port), ENOENT);
}

std::string own_address(const Ranks& ranks) {
  if (const char* const name = std::getenv("GLOO_SOCKET_IFNAME")) return address_of_interface(name);
  if (ranks.is_one_machine()) return kLoopback;
  return ranks.address.empty() ? address_of_interface(nullptr) : address_towards(ranks.address, ranks.port);
}

}  // namespace gpt::distributed
