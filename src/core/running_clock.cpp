#include "gpt/core/running_clock.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>

namespace gpt {
namespace {

Pauses& pauses() {
  static auto* const of_process = new Pauses;  // never destroyed: threads use it until the process has ended
  return *of_process;
}

Pauses::Time steady_time() { return std::chrono::steady_clock::now().time_since_epoch(); }

// How long ago the system started this process; 0 where it does not say.
double seconds_since_exec() {
  constexpr int kStartTime = 20;  // of the fields behind the name, which stands in brackets (proc_pid_stat(5))
  std::ifstream in("/proc/self/stat");
  const std::string stat((std::istreambuf_iterator<char>(in)), {});
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string field;
  for (int i = 0; i < kStartTime && fields >> field; ++i) {}
  timespec now{};
  if (!fields || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double started = std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::max(0.0, static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started);
}

// Looked at while the libraries are loaded, before anything can have paused.
const double seconds_before = seconds_since_exec();
const RunningClock::time_point seconds_counted_from = RunningClock::now();

}  // namespace

void Pauses::look(Time now) {
  const std::lock_guard lock(mutex_);
  looked_ = now;
}

void Pauses::woke(Time now) {
  const std::lock_guard lock(mutex_);
  if (looked_ && !since_) total_ += std::max(Time(0), now - *looked_ - kBetweenLooks);
  looked_ = now;
}

void Pauses::begin(Time now) {
  const std::lock_guard lock(mutex_);
  since_ = now;
}

void Pauses::end(Time now) {
  const std::lock_guard lock(mutex_);
  if (since_) total_ += now - *since_;
  since_.reset();
}

bool Pauses::is_late(Time now) const {
  const std::lock_guard lock(mutex_);
  return looked_ && now - *looked_ > 2 * kBetweenLooks;
}

bool Pauses::are_watched() const {
  const std::lock_guard lock(mutex_);
  return looked_.has_value();
}

Pauses::Time Pauses::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

Pauses::Known Pauses::known() const {
  const std::lock_guard lock(mutex_);
  return {total_, since_};
}

RunningClock::time_point RunningClock::now() {
  constexpr int kMostWaits = 100;
  for (int i = 0; i < kMostWaits && pauses().is_late(steady_time()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto [paused, since] =
      pauses().known();  // before the time itself: a pause in between is known to the next call
  return time_point((since ? *since : steady_time()) - paused);
}

RunningClock::Pause::Pause() { pauses().begin(steady_time()); }

RunningClock::Pause::~Pause() { pauses().end(steady_time()); }

bool RunningClock::is_watched() { return pauses().are_watched(); }

void RunningClock::look() { pauses().look(steady_time()); }

void RunningClock::woke() { pauses().woke(steady_time()); }

double seconds_since_start() { return seconds_before + seconds_since(seconds_counted_from); }

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace gpt
