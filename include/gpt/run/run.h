// A run in memory: its state, the step that changes it, and how long it goes on. gpt-train, the measurements of gpt-bench and the trials of
// the plan all drive this one; its folder, its reports and its signals are the trainer's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "gpt/run/beginning.h"
#include "gpt/run/evaluator.h"
#include "gpt/run/plan.h"
#include "gpt/run/recorder.h"
#include "gpt/run/setup.h"
#include "gpt/run/state.h"
#include "gpt/run/teacher.h"
#include "gpt/run/train_step.h"

namespace gpt::run {

// The teacher of the setup; null where it has none and its configuration names none. Throws gpt::Error as Teacher() does.
std::shared_ptr<Teacher> teacher_of(const Setup& setup);

class Run {
 public:
  using MakeRecorder = std::function<Recorder(model::GPT& model)>;

  // The setup must outlive it. `make_recorder`: in place of the one that compile_mode asks for.
  explicit Run(const Setup& setup, Beginning begins = {}, const MakeRecorder& make_recorder = nullptr);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Before the first update: tries the model's operators (model/compile.h). Where they fail, the run goes on with LibTorch's, and with
  // another step(), which records nothing. Whether the model's are used. `is_told`: the log says so too.
  bool check_operators(bool is_told = true);

  // The update that the plan has next. Returns the number of its tokens; nothing where `stop`, which is called between micro-batches,
  // was true. Then, and where it throws, data position and random state are as they were. Throws gpt::Error(data) where the token file
  // was truncated in the meantime.
  std::optional<int64_t> update(const std::function<bool()>& stop);

  // An update of so many micro-batches that learns nothing, for what it takes, and waits for it. Throws gpt::Error(interrupted) after a
  // signal.
  void try_update(int64_t micro_batches);

  // Which sequences an evaluation takes is the run's own rule, which its first evaluation settles.
  Evaluator& evaluator();

  const Setup& setup() const { return setup_; }
  const Plan& plan() const { return plan_; }
  void follow_course();                                           // the plan is as long as was decided last
  bool keeps_time() const { return keeps_time_; }                 // of training.max_time
  double learning_rate() const { return rates().learning_rate; }  // of the next update, as what follows
  optim::ScheduledRates rates() const;
  const ScheduleConfig& schedule() const { return schedule_; }  // with the warm-up that the run began with
  int64_t schedule_steps() const;                               // that it is laid out for
  double progress() const;                                      // along it, from 0 to 1
  bool begins_decay() const;                                    // with lr_schedule: wsd, after the last update
  State& state() { return state_; }
  const State& state() const { return state_; }
  TrainStep& step() { return *step_; }
  const TrainStep& step() const { return *step_; }
  model::GPT& model() { return state_.model; }
  const Teacher* teacher() const { return teacher_.get(); }  // null: there is none

 private:
  const Setup& setup_;
  std::shared_ptr<Teacher> teacher_;
  State state_;
  Plan plan_;
  ScheduleConfig schedule_;
  bool keeps_time_;
  std::optional<TrainStep> step_;
  std::optional<Evaluator> evaluator_;
};

// How many updates come before those that are timed: `wanted`, and on a GPU at least as many as recording the step takes, also where it is
// not recorded, so that losses can be compared after the same number of updates.
int64_t updates_before_timing(at::Device device, int64_t wanted);

}  // namespace gpt::run
