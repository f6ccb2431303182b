// Continuous batching: the texts of all requests grow together, a token of each in a step. A text joins as soon as a slot of the decoder is
// free and leaves when it ends; each has its own seed and settings, and is the text that generate() gives for them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gpt/generate/decoder.h"
#include "gpt/generate/drawn_text.h"
#include "gpt/generate/sampling_config.h"
#include "gpt/generate/session.h"
#include "gpt/serve/queue_pace.h"
#include "gpt/serve/text_event.h"

namespace gpt::serve {

// A request as the worker sees it. Choice i is text i % n of prompt i / n, and has the seed sampling.seed + i.
struct Task {
  struct Prompt {
    std::vector<int32_t> tokens;  // no more than block_size
    bool has_text = true;         // false: the tokens stand for an empty text
    int64_t silent = 0;           // tokens at the beginning that the text of the prompt does not spell
  };
  explicit Task(bool is_streamed = true) : events(is_streamed) {}

  std::vector<Prompt> prompts;
  generate::SamplingConfig sampling;
  int64_t n = 1;
  std::optional<int64_t> logprobs;
  int64_t adapter = ops::RowAdapters::kNone;
  bool ignores_end = false;    // a text goes on where the model would end it
  bool scores_prompt = false;  // with logprobs: the first event of a text has those of its prompt
  EventQueue events;

  int64_t choices() const { return n * std::ssize(prompts); }
  const Prompt& prompt_of(int64_t choice) const { return prompts[choice / n]; }
};

class Batcher {
 public:
  // `session` must outlive it. `slots`: texts at once; `queue`: requests that may wait for one. `adapters`: the operators of the session's model,
  // where it has adapters, or null.
  Batcher(generate::Session& session, int64_t slots, int64_t queue,
          std::shared_ptr<const ops::RowAdapters> adapters = nullptr);

  // From any thread. False where too many wait already.
  bool submit(std::shared_ptr<Task> task);

  struct State {
    int64_t slots, slots_in_use, queue, queued;
  };
  State state() const;
  int64_t seconds_until_room() const;  // in the queue, as far as can be told

  // Computes all texts, until it should stop: what has not ended then fails with status 503. The thread that calls it is the only one that
  // touches the model.
  void run(const std::function<bool()>& should_stop);

 private:
  struct Growing {
    std::shared_ptr<Task> task;
    int64_t choice;
    generate::DrawnText text;
  };

  void wait();
  void compute(bool single_tokens, const std::function<void()>& work);
  bool admit();
  std::optional<Growing> next_waiting();
  void pop_waiting();
  void begin(Growing& growing);
  at::Tensor score_prompt(const Growing& growing);
  void step();
  void draw_each(const std::vector<Growing*>& growing, const at::Tensor& logits);
  void take(Growing& growing, int32_t token, const at::Tensor& logits);
  void tell(const Growing& growing, TextEvent event);
  void remove_ended();
  void fail_all(const ApiError& error);

  generate::Session& session_;
  const int64_t slots_, queue_;
  const std::shared_ptr<const ops::RowAdapters> adapters_;
  generate::Decoder decoder_;
  at::Tensor without_text_;
  std::vector<std::unique_ptr<Growing>> growing_;  // at most slots_

  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::shared_ptr<Task>> waiting_;
  int64_t begun_ = 0;  // choices of the first that waits
  int64_t in_use_ = 0;
  QueuePace pace_;
  bool is_stopping_ = false;
};

}  // namespace gpt::serve
