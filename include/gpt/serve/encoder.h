// Prompts of all requests become tokens in one thread: a tokenizer remembers words, megabytes of them for each thread that encodes, and
// connections are threads that come and go.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpt/generate/session.h"

namespace gpt::serve {

class Encoder {
 public:
  explicit Encoder(const generate::Session& session);  // which must outlive it
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // From any thread. Throws what encode_prompt() throws.
  std::vector<int32_t> encode(const std::string& prompt);
  // What `encode` makes there. Throws what that throws.
  std::vector<int32_t> work(std::function<std::vector<int32_t>()> encode);

 private:
  void run();

  const generate::Session& session_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::packaged_task<std::vector<int32_t>()>> prompts_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace gpt::serve
