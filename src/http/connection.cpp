#include "connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gpt::http {
namespace {

// Until one of them has an event; false at the deadline.
bool wait_for(pollfd* events, nfds_t count, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = ::poll(events, count, static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool is_temporary(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Connection::Connection(int socket, int stop) : socket_(socket), stop_(stop) {
  const int on = 1;  // a piece of a stream is sent at once
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int bytes = 64 << 10;  // for a client that does not read the system would keep megabytes
  setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  // Asked for a sign of life now and then, because a client that has gone without a word is not seen otherwise.
  const int seconds = 15, times = 3;
  setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket_, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  setsockopt(socket_, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  setsockopt(socket_, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

Connection::~Connection() { ::close(socket_); }

bool Connection::read(std::string& buffer, Clock::time_point deadline) {
  char bytes[16'384];
  for (;;) {
    pollfd events[] = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
    if (!wait_for(events, 2, deadline) || events[1].revents != 0) return false;
    const ssize_t count = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) return buffer.append(bytes, count), true;
    if (count == 0 || !is_temporary(errno)) return false;
  }
}

bool Connection::write(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(count);
      continue;
    }
    pollfd event{socket_, POLLOUT, 0};
    if ((count < 0 && !is_temporary(errno)) || !wait_for(&event, 1, deadline)) return false;
  }
  return true;
}

bool Connection::sends_no_more() const { return has_event(POLLRDHUP); }

bool Connection::is_broken() const { return has_event(POLLERR | POLLHUP); }

bool Connection::has_event(int events) const {
  pollfd event{socket_, POLLRDHUP, 0};
  return ::poll(&event, 1, 0) > 0 && (event.revents & events) != 0;
}

void Connection::linger() {
  constexpr size_t kMostBytes = 8 << 20;
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  ::shutdown(socket_, SHUT_WR);
  std::string unread;
  for (size_t bytes = 0; bytes < kMostBytes && read(unread, deadline); bytes += unread.size()) unread.clear();
}

}  // namespace gpt::http
