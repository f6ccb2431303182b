// training.on_event: a program of the user's is started for what happens on the way of a run, such as a notification to a phone. It gets one
// JSON object as standard input, runs without a shell, and is never waited for: a thread of its own starts it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpt/report/listener.h"

namespace gpt::report {

// Throws gpt::Error(config) where there is no such program.
void require_event_command(const std::vector<std::string>& command);

class EventCommand : public Listener {
 public:
  // So many of the programs run at once, and so many events wait for their turn; later ones are left out, as a line says.
  static constexpr size_t kMostAtOnce = 4, kMostWaiting = 32;
  static constexpr int kMostWarnings = 100;  // of one start

  explicit EventCommand(std::vector<std::string> command);
  ~EventCommand() override;  // the program is started for the end of the run, if for nothing else that waits
  EventCommand(const EventCommand&) = delete;
  EventCommand& operator=(const EventCommand&) = delete;

  void begin(const RunRecord& run) override;
  void length(int64_t total_steps, double epochs) override;
  void activity(const ActivityRecord& activity) override;
  void evaluation(const EvaluationRecord& evaluation) override;
  void stop(const StopRecord& stop) override;
  void end() override;

 private:
  struct Event {
    std::string name, json;
    bool is_last = false;  // of the run
  };
  struct Child {
    pid_t id;
    std::string event;
  };

  void warn(const std::string& warning);
  // `more`: further members, as JSON text that an object is made of.
  void tell(const std::string& event, const std::string& text, const std::string& more = "{}", bool is_last = false);
  void start_programs();
  void start(const Event& event);
  void forget_ended();

  const std::vector<std::string> command_;
  std::string folder_, name_;  // of the run
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t step_ = 0, total_steps_ = 0;
  int warnings_ = 0;
  std::deque<Event> waiting_;
  bool has_left_out_ = false, is_over_ = false;
  std::vector<Child> children_;  // of the thread alone, as what follows
  bool is_failure_told_ = false;
  std::thread thread_;
};

}  // namespace gpt::report
