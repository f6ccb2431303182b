#include "sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <system_error>

#include "gpt/core/error.h"
#include "gpt/core/process.h"
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

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces list_interfaces() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) fail_socket("list the network interfaces", errno);
  return {all, freeifaddrs};
}

// The address of the first interface that is meant and carries something, IPv4 first; empty: there is none.
template <typename IsMeant>
std::string address_of(const IsMeant& is_meant) {
  constexpr unsigned kInUse = IFF_UP | IFF_RUNNING;
  const Interfaces all = list_interfaces();
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = all.get(); at; at = at->ifa_next)
      if (at->ifa_addr && at->ifa_addr->sa_family == family && (at->ifa_flags & kInUse) == kInUse && is_meant(*at))
        return numeric(at->ifa_addr);
  }
  return "";
}

std::string address_of_network() {
  const std::string found = address_of([](const ifaddrs& one) { return !(one.ifa_flags & IFF_LOOPBACK); });
  return found.empty() ? kLoopback : found;
}

// "eth0,eth1".
std::vector<std::string> addresses_of_interfaces(const std::string& names) {
  std::vector<std::string> found;
  std::istringstream words(names);
  for (std::string name; std::getline(words, name, ',');) {
    if (name.empty()) continue;
    found.push_back(address_of([&name](const ifaddrs& one) { return name == one.ifa_name; }));
    if (found.back().empty()) {
      throw Error(ExitCode::config,
                  fmt::format("GLOO_SOCKET_IFNAME names the network interface '{}', which has no address here", name));
    }
  }
  return found;
}

bool is_loopback(const std::string& address) { return address == "::1" || address.starts_with("127."); }

// Whether the connection that has begun is there: waits for it, but not longer than a signal lets it.
bool has_connected(int fd) {
  constexpr int kMilliseconds = 100;
  pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
  while (poll(&ready, 1, kMilliseconds) <= 0) {
    if (process::stop_signal() == 0) continue;
    close(fd);
    leave_if_stopped();
  }
  int number = 0;
  socklen_t length = sizeof number;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &length);
  errno = number;
  return number == 0;
}

// errno says why it is -1.
int connect_at(const addrinfo& at) {
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fd;
  const bool is_there = connect(fd, at.ai_addr, at.ai_addrlen) == 0 || (errno == EINPROGRESS && has_connected(fd));
  if (is_there && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0) return fd;
  const int number = errno;
  close(fd);
  errno = number;
  return -1;
}

void require_loopback() {
  try {
    (void)address_towards(kLoopback, 1);
  } catch (const Error& error) {
    throw Error(ExitCode::peer,
                fmt::format("{}; the processes of a machine meet at the loopback, which is down here: bring it "
                            "up (ip link set lo up)",
                            error.what()));
  }
}

// What a process of a run has open: its files and libraries, and its connections to each of the others.
void require_descriptors(int64_t processes) {
  constexpr int64_t kOwn = 32, kForEach = 12;
  const auto needed = static_cast<rlim_t>(kOwn + kForEach * processes);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  if (limit.rlim_cur == needed && setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  throw Error(ExitCode::peer,
              fmt::format("each of {} processes needs {} descriptors of files and connections, and may open {}: "
                          "raise that limit (ulimit -n {})",
                          processes, needed, limit.rlim_max, needed));
}

}  // namespace

void leave_if_stopped() {
  if (process::stop_signal() != 0)
    throw Error(ExitCode::interrupted, "stopped while the processes met: nothing had begun");
}

int connect_to(const std::string& address, uint16_t port) {
  const Addresses found = resolve_address(address, port, SOCK_STREAM);
  for (const addrinfo* at = found.get(); at; at = at->ai_next) {
    const int fd = connect_at(*at);
    if (fd >= 0) return fd;
    if (!at->ai_next) fail_socket(fmt::format("connect to {}:{}", address, port), errno);
  }
  fail_socket(fmt::format("connect to {}:{}", address, port), ENOENT);
}

std::vector<std::string> own_addresses(const Ranks& ranks) {
  if (const char* const names = std::getenv("GLOO_SOCKET_IFNAME")) {
    if (std::vector<std::string> found = addresses_of_interfaces(names); !found.empty()) return found;
  }
  if (ranks.is_one_machine()) return {kLoopback};
  const std::string towards = ranks.address.empty() ? "" : address_towards(ranks.address, ranks.port);
  return {towards.empty() || is_loopback(towards) ? address_of_network() : towards};
}

void require_connections(const Ranks& ranks) {
  require_descriptors(ranks.size);
  if (ranks.is_one_machine()) require_loopback();
}

}  // namespace gpt::distributed
