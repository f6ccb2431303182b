#include "gpt/generate/thread_choice.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gpt/core/running_clock.h"
#include "gpt/core/statistics.h"

namespace gpt::generate {
namespace {

constexpr size_t kTokens = 3;  // in a trial; their median counts, so that one that was disturbed does not
constexpr double kWorse =
    1.5;  // as long: not worth a third token, or, of what was chosen, a sign that the machine has changed
constexpr double kRest = 20;  // times as long as it took to choose: then the choice is made again
// A program beside this one takes a core for a while and then not: three tokens may all be lucky. In the long run the median of more of them
// counts, and where it is so many times as long as another number of threads took, that one is tried again.
constexpr size_t kManyTokens = 15;
constexpr double kSlower = 1.1;

}  // namespace

ThreadChoice::ThreadChoice(int64_t most) {
  for (int64_t count = 1; count < most; count *= 2) counts_.push_back(count);
  counts_.push_back(most);
  begin_round();
}

void ThreadChoice::took(double seconds) {
  spent_ += seconds;
  recent_.push_back(seconds);
  if (is_trying_) {
    if (recent_.size() == kTokens || is_hopeless()) end_trial();
    return;
  }
  if (recent_.size() > kManyTokens) recent_.erase(recent_.begin());
  if (spent_ > kRest * round_ || (spent_ > round_ && has_changed())) return begin_round();
  if (spent_ > round_ && recent_.size() == kManyTokens && is_slower_than_another()) begin_round(median(recent_));
}

// Its latest tokens took much longer than when it was chosen.
bool ThreadChoice::has_changed() const {
  if (recent_.size() < kTokens) return false;
  return median(std::vector<double>(recent_.end() - kTokens, recent_.end())) > kWorse * *seconds_[current_];
}

bool ThreadChoice::is_slower_than_another() const {
  const double now = median(recent_);
  return std::any_of(seconds_.begin(), seconds_.end(),
                     [now](const auto& seconds) { return seconds && now > kSlower * *seconds; });
}

// With the count that is in use, unless what its tokens take is `known`: all others are compared with it.
void ThreadChoice::begin_round(std::optional<double> known) {
  seconds_.assign(counts_.size(), std::nullopt);
  seconds_[current_] = known;
  spent_ = 0;
  is_trying_ = counts_.size() > 1;
  use(known ? *untried() : current_);
}

void ThreadChoice::end_trial() {
  seconds_[current_] = median(recent_);
  if (const auto next = untried()) return use(*next);
  round_ = std::exchange(spent_, 0);
  is_trying_ = false;
  use(fastest());
}

void ThreadChoice::use(size_t count) {
  current_ = count;
  recent_.clear();
}

// Its median will not be near the best.
bool ThreadChoice::is_hopeless() const {
  const size_t best = fastest();
  const auto is_slow = [&](double seconds) { return seconds > kWorse * *seconds_[best]; };
  return seconds_[best] && std::count_if(recent_.begin(), recent_.end(), is_slow) > kTokens / 2;
}

// The fastest of those that were tried; the first where none was.
size_t ThreadChoice::fastest() const {
  size_t best = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (seconds_[i] && (!seconds_[best] || *seconds_[i] < *seconds_[best])) best = i;
  }
  return best;
}

// One thread against all, then the neighbours of what is best so far, until both are slower.
std::optional<size_t> ThreadChoice::untried() const {
  const size_t best = fastest();
  for (const size_t i : {size_t{0}, counts_.size() - 1, best == 0 ? 0 : best - 1, best + 1}) {
    if (i < counts_.size() && !seconds_[i]) return i;
  }
  return std::nullopt;
}

void work_timed(ThreadChoice& choice, bool is_alone, const std::function<void()>& work) {
  const int64_t threads = is_alone ? choice.threads() : choice.most();
  if (threads != at::get_num_threads()) at::set_num_threads(static_cast<int>(threads));
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  work();
  if (is_alone) choice.took(seconds_since(start));
}

}  // namespace gpt::generate
