#include "gpt/serve/encoder.h"

#include <utility>

#include "gpt/generate/prompt.h"

namespace gpt::serve {

Encoder::Encoder(const generate::Session& session) : session_(session), thread_(&Encoder::run, this) {}

Encoder::~Encoder() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  came_.notify_one();
  thread_.join();
}

std::vector<int32_t> Encoder::encode(const std::string& prompt) {
  return work([&] {
    return generate::encode_prompt(*session_.loaded.tokenizer, prompt, "prompt",
                                   generate::prompt_start(session_.loaded));
  });
}

std::vector<int32_t> Encoder::work(std::function<std::vector<int32_t>()> encode) {
  std::packaged_task<std::vector<int32_t>()> task(std::move(encode));
  std::future<std::vector<int32_t>> ids = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    prompts_.push_back(std::move(task));
  }
  came_.notify_one();
  return ids.get();
}

void Encoder::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    came_.wait(lock, [this] { return is_stopping_ || !prompts_.empty(); });
    if (prompts_.empty()) return;
    std::packaged_task<std::vector<int32_t>()> task = std::move(prompts_.front());
    prompts_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace gpt::serve
