// The socket of a run that goes on, through which it is told what to do (message.h). A thread of its own reads; the run looks at what has come
// whenever it likes, and answers. Whoever connects and says nothing, or too much, takes neither memory nor time from the run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpt/control/message.h"

namespace gpt::control {

class Inbox {
 public:
  static constexpr size_t kMostClients = 16;                   // connections, of which each has one request
  static constexpr std::chrono::milliseconds kPatience{5000};  // for a request to arrive in whole

  // In the folder, which the run has locked, so that a socket that is there was left by a killed one: it is replaced. Only this user can reach
  // it. Where none can be made, as on some network file systems, a line says so, and nothing ever comes. `stop`: for Verb::stop, which waits for
  // nothing; any thread may call it.
  Inbox(const std::string& folder, std::function<void()> stop, std::chrono::milliseconds patience = kPatience);
  ~Inbox();  // whoever still waits hears that the run has ended
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  struct Asked {
    uint64_t id = 0;
    Request request = {};
  };
  bool has_requests() const;
  bool wait(std::chrono::milliseconds most);  // until there are some; whether there are
  std::vector<Asked> take(size_t most);       // in the order in which they came
  void answer(uint64_t id, const Answer& answer);

 private:
  struct Client {
    int socket;
    uint64_t id;
    std::chrono::steady_clock::time_point deadline;
    std::string text = {};
    bool has_asked = false;
  };

  int open_socket(const std::string& folder);  // -1: there is none, as a line has said
  void serve();
  int milliseconds_left() const;
  void accept_client();
  bool read_from(Client& client);                     // false: it has been answered, or has gone
  bool take_line(Client& client);                     // the same
  void give_answers();                                // those of the run
  static void say(int socket, const Answer& answer);  // and closes it

  const std::function<void()> stop_;
  const std::chrono::milliseconds patience_;
  int folder_ = -1, listener_ = -1, wake_ = -1;
  uint64_t last_id_ = 0;
  std::vector<Client> clients_;  // of the thread alone

  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<Asked> requests_;                        // at most one of each client
  std::vector<std::pair<uint64_t, Answer>> answers_;  // to be given
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace gpt::control
