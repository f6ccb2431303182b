// Decisions that change a run on its way, such as another factor on its learning rate: from which step on what has which value. They stand
// in decisions.jsonl of the run's folder, a line each, and a decision takes effect only when that file with it is on the disk. A run that
// is killed and goes on from an earlier step takes them again at their steps, and a new one with --replay takes those of another run.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpt/checkpoint/remembered.h"
#include "gpt/distributed/communicator.h"
#include "gpt/run/beginning.h"
#include "gpt/run/folder.h"
#include "gpt/run/state.h"

namespace gpt::run {

// What can be decided; each has a row in decisions.cpp.
inline constexpr const char* kLearningRateFactor = "learning_rate_factor";
inline constexpr const char* kTotalSteps = "total_steps";  // of training.max_time
inline constexpr const char* kSteps = "steps";             // of a run that was told to be longer or shorter

// {"step": 100, "what": "learning_rate_factor", "value": 0.5} in each line, in the order of their steps. Throws gpt::Error(checkpoint) with
// PATH:LINE, what is wrong there, and what is right.
std::vector<checkpoint::Decision> read_decisions(const std::string& path);

// At the first process: those that the run which begins so has still to take. They are its own of an earlier start, where it goes on as if it
// had never stopped, and those of the file `replay`, unless that is empty. Throws gpt::Error as read_decisions(); and with code config
// where `replay` is no such file, where the two contradict each other, or where the run is beyond a decision that it has not taken.
std::vector<checkpoint::Decision> decisions_to_come(const Folder& folder, const Beginning& begins,
                                                    const std::string& replay);

// At the first process, when nothing can refuse the run any more: the file has what the run has taken and what it has still to take. What it
// had besides, of a course that was given up, moves to decisions.old.jsonl. Throws gpt::Error(disk).
void begin_decisions(const Folder& folder, const std::vector<checkpoint::Decision>& taken,
                     const std::vector<checkpoint::Decision>& to_come);

// What of a decision people are told: "the learning rate is 0.5 times the schedule's".
std::string describe(const checkpoint::Decision& decision);

// The decisions of a run that trains. All its processes call the same functions at the same points between two updates, so that a decision
// holds for the next one, which none of them has begun.
class Decisions {
 public:
  // `to_come`: as decisions_to_come() has them, in all processes. `ranks`: all of the run. `schedule_steps`: that its schedule is laid out
  // for.
  Decisions(State& state, const Folder& folder, std::vector<checkpoint::Decision> to_come,
            std::shared_ptr<distributed::Communicator> ranks, int64_t schedule_steps)
      : state_(state),
        folder_(folder),
        to_come_(std::move(to_come)),
        ranks_(std::move(ranks)),
        schedule_steps_(schedule_steps) {}

  // Lets `what` be `value` from the next update on, or what an earlier start decided for this step. It takes the place of what this start
  // has decided for it. The first process writes it, and the others wait until it is on the disk. False: the disk refuses it, as a line
  // says, and nothing has changed.
  bool decide(const char* what, double value);

  // Decisions that were made before and are due now take effect, and are returned.
  std::vector<checkpoint::Decision> take_due();
  bool has_to_come(const char* what) const;

 private:
  bool write(const checkpoint::Decision& decision) const;
  void take(const checkpoint::Decision& decision);

  State& state_;
  const Folder& folder_;
  std::vector<checkpoint::Decision> to_come_;  // in the order of their steps
  std::shared_ptr<distributed::Communicator> ranks_;
  int64_t schedule_steps_;
};

// Why a run with this schedule and these data cannot be told to be longer or shorter; empty: it can.
std::string why_length_is_fixed(const ScheduleConfig& schedule, const DataConfig& data);

}  // namespace gpt::run
