// A connection that a client has opened. Nothing waits longer than its deadline, and reading ends where the server stops.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace gpt::http {

using Clock = std::chrono::steady_clock;

class Connection {
 public:
  // Owns `socket`. `stop` becomes readable where the server stops.
  Connection(int socket, int stop);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool read(std::string& buffer, Clock::time_point deadline);  // appends what has come; false where nothing more will
  bool write(std::string_view bytes, Clock::time_point deadline);
  bool sends_no_more() const;  // the client; it may still wait for its answer
  bool is_broken() const;      // by the client, or by a network without it
  int socket() const { return socket_; }
  // Says that no more is coming, and gives the client a moment to read what has: closing at once, while some of what it sent is unread,
  // would take that away from it.
  void linger();

 private:
  bool has_event(int events) const;

  const int socket_;
  const int stop_;
};

}  // namespace gpt::http
