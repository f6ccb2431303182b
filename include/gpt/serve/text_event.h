// What the worker says about the texts of a request, and the queue in which a connection finds it. The worker never waits for a client:
// one that has left, or leaves too much unread, gets no more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/serve/api_error.h"

namespace gpt::serve {

// How likely a token was, as the natural logarithm of its probability under the model, whatever it was drawn with.
struct TokenScore {
  int32_t id = 0;
  std::optional<float> logprob = {};                // nothing for the first token of a prompt
  std::vector<std::pair<int32_t, float>> top = {};  // the likeliest tokens there, the likeliest first
  std::string text = {};                            // the bytes that the token adds to what is answered
};

struct TextEvent {
  int64_t choice = 0;
  std::string text = {};  // whole characters
  std::vector<TokenScore> scores =
      {};                  // where they were asked for: those of the prompt first, then one for each token drawn
  int64_t new_tokens = 0;  // drawn since the last event
  std::string finish_reason = {};  // "stop" or "length"; empty while the text goes on
};

class EventQueue {
 public:
  static constexpr size_t kMostUnread = 1 << 20;  // bytes

  // `wakes_for_each`: a reader that waits gets each event at once. Otherwise it is woken where a text has ended, and gets what came before
  // together: waking a thread for each token of each text takes the processors from those that compute.
  explicit EventQueue(bool wakes_for_each = true) : wakes_for_each_(wakes_for_each) {}

  // Called by the worker. Both do nothing once the request is over.
  void push(TextEvent event);
  void fail(const ApiError& error);
  bool is_over() const;  // nothing more is wanted

  // Called by the connection. Nothing where no event comes within the time; throws what fail() was given, after the events before it.
  std::optional<TextEvent> next(std::chrono::milliseconds patience);
  void leave();

 private:
  const bool wakes_for_each_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<TextEvent> events_;
  size_t unread_ = 0;  // bytes
  bool has_left_ = false;
  std::optional<ApiError> error_;
};

}  // namespace gpt::serve
