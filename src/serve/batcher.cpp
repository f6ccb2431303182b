#include "gpt/serve/batcher.h"

#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/device/precision.h"
#include "gpt/model/evaluation_mode.h"
#include "gpt/ops/sdp_backends.h"
#include "gpt/serve/scores.h"

namespace gpt::serve {
namespace {

// The client is told what its request met, in one line.
ApiError as_api_error(const std::exception& e) {
  log::warn(fmt::format("a request failed: {}", first_line(e.what())));
  return ApiError(500, first_line(e.what()));
}

}  // namespace

Batcher::Batcher(generate::Session& session, int64_t slots, int64_t queue,
                 std::shared_ptr<const ops::RowAdapters> adapters)
    : session_(session),
      slots_(slots),
      queue_(queue),
      adapters_(std::move(adapters)),
      decoder_(*session.loaded.model, slots, session.loaded.compute_type, /*longest=*/std::nullopt, adapters_),
      without_text_(generate::ids_without_text(*session.loaded.tokenizer, *session.loaded.model->config().vocab_size,
                                               session.loaded.model->device())) {}

bool Batcher::submit(std::shared_ptr<Task> task) {
  const std::lock_guard lock(mutex_);
  if (is_stopping_) {
    task->events.fail({503, "the server is stopping"});
    return true;
  }
  if (std::ssize(waiting_) >= queue_ + slots_ - in_use_) return false;
  waiting_.push_back(std::move(task));
  came_.notify_one();
  return true;
}

Batcher::State Batcher::state() const {
  const std::lock_guard lock(mutex_);
  return {slots_, in_use_, queue_, std::ssize(waiting_)};
}

int64_t Batcher::seconds_until_room() const {
  const std::lock_guard lock(mutex_);
  return pace_.seconds_until_room(QueuePace::Clock::now());
}

void Batcher::run(const std::function<bool()>& should_stop) {
  const c10::InferenceMode inference;
  const model::EvaluationMode evaluation(*session_.loaded.model);
  const ops::OnlySdpBackends backends(ops::without_cudnn());
  while (!should_stop()) {
    while (admit()) {}
    remove_ended();
    if (growing_.empty()) {
      wait();
      continue;
    }
    try {
      compute(decoder_.computes_single_tokens(), [this] { step(); });
    } catch (const std::exception& e) { fail_all(as_api_error(e)); }
    remove_ended();
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    for (const auto& task : std::exchange(waiting_, {})) task->events.fail({503, "the server is stopping"});
  }
  fail_all({503, "the server is stopping"});
  remove_ended();
}

void Batcher::compute(bool single_tokens, const std::function<void()>& work) {
  session_.threads ? generate::work_timed(*session_.threads, single_tokens, work) : work();
}

// A moment, because signals wake nobody.
void Batcher::wait() {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, std::chrono::milliseconds(100), [this] { return !waiting_.empty(); });
}

// Begins the next text that waits. False where there is none or no slot, and after a prompt of which all positions were computed: the
// others get their next token before another one is.
bool Batcher::admit() {
  std::optional<Growing> next = next_waiting();
  if (!next) return false;
  Growing& growing = *growing_.emplace_back(std::make_unique<Growing>(std::move(*next)));
  try {
    compute(/*single_tokens=*/false, [&] { begin(growing); });
  } catch (const std::exception& e) { growing.task->events.fail(as_api_error(e)); }
  return !growing.task->scores_prompt;
}

std::optional<Batcher::Growing> Batcher::next_waiting() {
  const std::lock_guard lock(mutex_);
  while (!waiting_.empty() && waiting_.front()->events.is_over()) pop_waiting();
  if (waiting_.empty() || std::ssize(growing_) == slots_) return std::nullopt;
  const std::shared_ptr<Task> task = waiting_.front();
  const int64_t choice = begun_++;
  if (begun_ == task->choices()) pop_waiting();
  ++in_use_;
  const generate::SamplingConfig& sampling = task->sampling;
  Growing growing{task, choice,
                  generate::DrawnText(session_.loaded.model->device(), sampling.seed + static_cast<uint64_t>(choice),
                                      sampling.stop,
                                      sampling.ends.empty() ? session_.loaded.text_format.ends : sampling.ends,
                                      task->prompt_of(choice).has_text)};
  growing.text.ignores_end = task->ignores_end;
  return growing;
}

void Batcher::pop_waiting() {
  waiting_.pop_front();
  begun_ = 0;
  pace_.one_left(QueuePace::Clock::now(), std::ssize(waiting_));
}

void Batcher::begin(Growing& growing) {
  const Task& task = *growing.task;
  at::Tensor next;  // logits (1, V) after the prompt
  if (task.scores_prompt) next = score_prompt(growing);
  if (task.sampling.max_new_tokens == 0) return tell(growing, {.text = growing.text.end_by_length()});
  growing.text.slot = *decoder_.add(task.prompt_of(growing.choice).tokens, task.adapter);
  if (next.defined() && task.sampling.max_new_tokens == 1) draw_each({&growing}, next);  // nothing is left to compute
}

// All positions at once and in float32, apart from the decoder. Returns the logits after the last one.
at::Tensor Batcher::score_prompt(const Growing& growing) {
  const Task& task = *growing.task;
  const auto& [prompt, has_text, silent] = task.prompt_of(growing.choice);
  const ops::RowAdapters::Scope scope(adapters_.get(), {{std::ssize(prompt), task.adapter}});
  const at::Tensor ids = at::tensor(std::vector<int64_t>(prompt.begin(), prompt.end())).unsqueeze(0);
  const at::Tensor logits =
      session_.loaded.model->forward(ids.to(session_.loaded.model->device())).squeeze(0);  // (T, V)
  std::vector<TokenScore> scores = {{.id = prompt[0], .logprob = {}, .top = {}}};
  for (TokenScore& score : score_tokens(logits, std::span(prompt).subspan(1), *task.logprobs))
    scores.push_back(std::move(score));
  const tokenizer::Tokenizer& tokenizer = *session_.loaded.tokenizer;
  for (int64_t i = has_text ? silent : std::ssize(scores); i < std::ssize(scores); ++i)
    scores[i].text = tokenizer.piece(scores[i].id, /*begins_text=*/i == silent);
  tell(growing, {.scores = std::move(scores)});
  return logits.narrow(0, logits.size(0) - 1, 1);
}

void Batcher::step() {
  const device::Autocast autocast(session_.loaded.model->device(), session_.loaded.compute_type);
  const auto [slots, logits] = decoder_.step();
  std::vector<Growing*> growing;
  for (const int64_t slot : slots) {
    const auto is_there = [slot](const auto& one) { return one->text.slot == slot; };
    growing.push_back(std::find_if(growing_.begin(), growing_.end(), is_there)->get());
  }
  draw_each(growing, logits);
}

// A token for each of these texts, with the logits of its row. What one of them meets fails its request alone.
void Batcher::draw_each(const std::vector<Growing*>& growing, const at::Tensor& logits) {
  std::vector<int32_t> tokens(growing.size());
  std::vector<std::optional<Error>> errors(growing.size());
  generate::for_each_text(std::ssize(growing), [&](int64_t i) {
    generate::DrawnText& text = growing[i]->text;
    try {
      tokens[i] = generate::draw(logits.narrow(0, i, 1), decoder_.tokens(text.slot), growing[i]->task->sampling,
                                 without_text_, text.generator);
    } catch (const Error& error) { errors[i] = error; }
  });
  for (size_t i = 0; i < growing.size(); ++i) {
    if (errors[i]) {
      growing[i]->task->events.fail(as_api_error(*errors[i]));
    } else {
      take(*growing[i], tokens[i], logits.narrow(0, static_cast<int64_t>(i), 1));
    }
  }
}

void Batcher::take(Growing& growing, int32_t token, const at::Tensor& logits) {
  const Task& task = *growing.task;
  generate::DrawnText& text = growing.text;
  TextEvent event{.new_tokens = 1};
  if (task.logprobs) {
    event.scores = score_tokens(logits, {&token, 1}, *task.logprobs);
    event.scores[0].text = text.piece_of(token, *session_.loaded.tokenizer);
  }
  event.text = text.take(token, *session_.loaded.tokenizer);
  if (!text.is_done() && text.result.new_tokens == task.sampling.max_new_tokens) event.text += text.end_by_length();
  if (!text.is_done()) decoder_.append(text.slot, token);
  tell(growing, std::move(event));
}

void Batcher::tell(const Growing& growing, TextEvent event) {
  event.choice = growing.choice;
  const std::string& reason = growing.text.result.stop_reason;
  if (!reason.empty()) event.finish_reason = reason == "length" ? "length" : "stop";
  growing.task->events.push(std::move(event));
}

// Those that are complete, and those of requests that are over. Their slots are free from here on.
void Batcher::remove_ended() {
  const auto has_ended = [this](const auto& growing) {
    if (!growing->text.is_done() && !growing->task->events.is_over()) return false;
    if (growing->text.slot >= 0) decoder_.remove(growing->text.slot);
    return true;
  };
  std::erase_if(growing_, has_ended);
  const std::lock_guard lock(mutex_);
  in_use_ = std::ssize(growing_);
}

void Batcher::fail_all(const ApiError& error) {
  for (const auto& growing : growing_) growing->task->events.fail(error);
}

}  // namespace gpt::serve
