#include "gpt/report/event_command.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/core/detached_program.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/host_name.h"
#include "gpt/core/log.h"
#include "gpt/core/running_clock.h"
#include "gpt/core/surroundings.h"
#include "json_number.h"

namespace gpt::report {
namespace {

using nlohmann::ordered_json;

std::string name_of_folder(const std::string& folder) {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::weakly_canonical(folder, ignored);
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

}  // namespace

void require_event_command(const std::vector<std::string>& command) {
  if (command.empty() || is_program(command[0])) return;
  throw Error(ExitCode::config, fmt::format("training.on_event: there is no program '{}'; name one, and its arguments "
                                            "after it, like [curl, -d, \"@-\", URL]",
                                            command[0]));
}

EventCommand::EventCommand(std::vector<std::string> command) : command_(std::move(command)) {
  thread_ = surroundings::thread_if_possible([this] { start_programs(); });
  log::hear_warnings([this](const std::string& warning) { warn(warning); });
}

EventCommand::~EventCommand() {
  log::hear_warnings(nullptr);
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EventCommand::begin(const RunRecord& run) {
  {
    const std::lock_guard lock(mutex_);
    folder_ = run.folder, name_ = name_of_folder(run.folder);
    step_ = run.first_step, total_steps_ = run.total_steps;
  }
  tell("start", run.first_step == 0 ? "the run begins"
                                    : fmt::format("the run goes on after step {}", with_commas(run.first_step)));
}

void EventCommand::length(int64_t total_steps, double /*epochs*/) {
  const std::lock_guard lock(mutex_);
  total_steps_ = total_steps;
}

void EventCommand::activity(const ActivityRecord& activity) {
  const std::lock_guard lock(mutex_);
  step_ = activity.step;
}

void EventCommand::evaluation(const EvaluationRecord& evaluation) {
  if (!evaluation.is_best) return;
  ordered_json more{{"val_loss", json_number(evaluation.loss)}};
  if (evaluation.bits_per_byte) more["val_bits_per_byte"] = json_number(*evaluation.bits_per_byte);
  tell("best", fmt::format("best validation loss {:.4f}", evaluation.loss), more.dump());
}

void EventCommand::stop(const StopRecord& stop) { tell("stop", "stopped " + stop.why, "{}", /*is_last=*/true); }

void EventCommand::end() { tell("end", "the run is done", "{}", /*is_last=*/true); }

void EventCommand::warn(const std::string& warning) {
  {
    const std::lock_guard lock(mutex_);
    if (folder_.empty()) return;  // the run has not begun
    if (++warnings_ > kMostWarnings) {
      has_left_out_ = true;
      return;
    }
  }
  tell("warning", "warning: " + warning);
}

void EventCommand::tell(const std::string& event, const std::string& text, const std::string& more, bool is_last) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostWaiting && !is_last) {
      has_left_out_ = true;
      return;
    }
    ordered_json json{{"text", fmt::format("{}: step {} of {}: {}", name_, with_commas(step_),
                                           with_commas(total_steps_), text)},
                      {"event", event},
                      {"run", name_},
                      {"folder", folder_},
                      {"host", host_name()},
                      {"step", step_},
                      {"total_steps", total_steps_},
                      {"time", seconds_since_1970()}};
    json.update(ordered_json::parse(more));
    waiting_.push_back(
        {event, json.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace) + "\n", is_last});
  }
  changed_.notify_all();
}

// What still waits when the run is over is left out, but for the last event.
void EventCommand::start_programs() {
  constexpr std::chrono::milliseconds kBetweenLooks(200);
  std::unique_lock lock(mutex_);
  for (bool is_told = false;;) {
    const auto has_work = [this] { return is_over_ || (!waiting_.empty() && children_.size() < kMostAtOnce); };
    children_.empty() ? changed_.wait(lock, has_work) : void(changed_.wait_for(lock, kBetweenLooks, has_work));
    std::deque<Event> now;
    if (is_over_) {
      for (const Event& event : waiting_)
        if (event.is_last) now.push_back(event);
      waiting_.clear();
    }
    for (; !waiting_.empty() && children_.size() + now.size() < kMostAtOnce; waiting_.pop_front())
      now.push_back(waiting_.front());
    const bool is_over = is_over_, tells = has_left_out_ && !is_told;
    is_told = is_told || tells;
    lock.unlock();
    if (tells)
      log::info("training.on_event: some events are left out, because there are many, or the program takes long");
    forget_ended();
    for (const Event& event : now) start(event);
    if (is_over) return;
    lock.lock();
  }
}

void EventCommand::start(const Event& event) {
  try {
    children_.push_back({start_detached(command_, event.json), event.name});
  } catch (const Error& error) {  // no warning, which would be another event
    if (!std::exchange(is_failure_told_, true)) log::info(fmt::format("training.on_event: {}", error.what()));
  }
}

void EventCommand::forget_ended() {
  std::erase_if(children_, [this](const Child& child) {
    int status = 0;
    if (waitpid(child.id, &status, WNOHANG) == 0) return false;
    const bool has_failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (has_failed && !std::exchange(is_failure_told_, true))
      log::info(fmt::format("training.on_event: {} failed for the event '{}' ({} {})", command_[0], child.event,
                            WIFEXITED(status) ? "exit status" : "signal",
                            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
    return true;
  });
}

}  // namespace gpt::report
