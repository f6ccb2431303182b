#include "gpt/serve/text_event.h"

namespace gpt::serve {
namespace {

size_t bytes_of(const TextEvent& event) {
  size_t bytes = sizeof event + event.text.size() + event.scores.size() * sizeof(TokenScore);
  for (const TokenScore& score : event.scores) bytes += score.top.size() * sizeof score.top[0] + score.text.size();
  return bytes;
}

}  // namespace

void EventQueue::push(TextEvent event) {
  const std::lock_guard lock(mutex_);
  if (has_left_ || error_) return;
  const bool wakes = wakes_for_each_ || !event.finish_reason.empty() || unread_ > kMostUnread / 4;
  // One event alone may be larger: the scores of a long prompt.
  if (!events_.empty() && unread_ + bytes_of(event) > kMostUnread) {
    error_.emplace(503, "the client reads too slowly: too much of its text is waiting for it");
  } else {
    unread_ += bytes_of(event);
    events_.push_back(std::move(event));
  }
  if (wakes || error_) came_.notify_one();
}

void EventQueue::fail(const ApiError& error) {
  const std::lock_guard lock(mutex_);
  if (!has_left_ && !error_) error_ = error;
  came_.notify_one();
}

bool EventQueue::is_over() const {
  const std::lock_guard lock(mutex_);
  return has_left_ || error_;
}

std::optional<TextEvent> EventQueue::next(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!came_.wait_for(lock, patience, [this] { return !events_.empty() || error_; })) return std::nullopt;
  if (events_.empty()) throw ApiError(*error_);
  TextEvent event = std::move(events_.front());
  events_.pop_front();
  unread_ -= bytes_of(event);
  return event;
}

void EventQueue::leave() {
  const std::lock_guard lock(mutex_);
  has_left_ = true;
  events_.clear();
}

}  // namespace gpt::serve
