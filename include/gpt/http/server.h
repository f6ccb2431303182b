// A small HTTP server: a thread for each connection, and limits on all that a client may send, hold or delay.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "gpt/http/request.h"
#include "gpt/http/responder.h"

namespace gpt::http {

struct Limits {
  size_t head_bytes = 16 << 10;
  size_t body_bytes = 4 << 20;
  size_t connections = 256;                   // at a time
  int64_t requests = 1000;                    // over one connection
  std::chrono::milliseconds idle{15'000};     // between two requests
  std::chrono::milliseconds request{30'000};  // from the first byte of a request to its last
  std::chrono::milliseconds write{30'000};    // until a client has taken a piece of the answer
  std::chrono::milliseconds rest{
      1'000};  // for a request, after which a connection may be closed in favour of another client
  std::chrono::milliseconds silence{1'000};  // of a client that sends no more, before it is asked whether it is there
};

// Both are called from the threads of the connections, many at once. An exception is answered by refuse() with status 500.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void answer(const Request& request, Responder& responder) = 0;
  virtual void refuse(const Refusal& refusal, Responder& responder) = 0;  // what is no request, or too much of one
};

// Whether only programs on this machine can reach a server there: 127.0.0.1 and the like, ::1 or localhost. No other name is looked up:
// whoever owns it may say that it is 127.0.0.1.
bool is_loopback(const std::string& host);

class Server {
 public:
  // Answers from here on; port 0: any that is free. Throws gpt::Error(config) where nothing can listen there.
  Server(const std::string& host, uint16_t port, const Limits& limits, Handler& handler);
  ~Server();  // stop()

  uint16_t port() const { return port_; }
  void stop_accepting();  // connections without a request are closed, and answers under way are the last ones
  void stop();            // and waits for these, a few seconds at most

 private:
  struct Open {
    std::optional<std::chrono::steady_clock::time_point> waits_since;  // for the next request, or the rest of it
    bool is_closing = false;
  };

  void accept_all();
  bool is_stopping();
  bool make_room();
  void close_longest_waiting();
  void say_full();
  void start(int socket);
  void serve(int socket);
  void set_waiting(int socket, bool is_waiting);
  bool answer_next(Connection& connection, std::string& buffer, bool may_go_on);
  std::optional<Request> read_request(Connection& connection, std::string& buffer);

  const Limits limits_;
  Handler& handler_;
  int listener_ = -1, stop_ = -1;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Open> open_;                                       // by socket
  std::optional<std::chrono::steady_clock::time_point> was_full_;  // when this was last said
  bool is_stopping_ = false;
  std::thread acceptor_;
};

}  // namespace gpt::http
