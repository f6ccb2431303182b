// The cadence of a run: update, log, evaluate, sample, checkpoint, stop. How each of them works is defined elsewhere.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/control/inbox.h"
#include "gpt/core/error.h"
#include "gpt/core/process.h"
#include "gpt/report/listener.h"
#include "gpt/run/decisions.h"
#include "gpt/run/folder.h"
#include "gpt/run/forecast.h"
#include "gpt/run/interruptions.h"
#include "gpt/run/out_of_memory.h"
#include "gpt/run/run.h"
#include "gpt/run/time_budget.h"
#include "gpt/train/checkpoint_keeper.h"
#include "gpt/train/device_watch.h"
#include "gpt/train/divergence.h"
#include "gpt/train/efficiency.h"
#include "gpt/train/memory_watch.h"
#include "gpt/train/progress_bar.h"
#include "gpt/train/reporting.h"
#include "gpt/train/stopwatch.h"
#include "gpt/train/task_evaluations.h"

namespace gpt::train {

class Trainer {
 public:
  // `is_saved`: ckpt.pt of the folder holds the run's state already. `decisions`: that the run has still to take. `senses`: for what other
  // programs take. `inbox`: at the first process of a run that can be told what to do; null: it cannot.
  Trainer(run::Run& run, const run::Folder& folder, report::Listeners& listeners, bool is_saved,
          std::vector<checkpoint::Decision> decisions = {}, MemoryWatch::Senses senses = MemoryWatch::of_this_machine(),
          control::Inbox* inbox = nullptr);

  // Runs to the end, or to a signal: ok, or the signal's exit status, with everything worth saving saved.
  // Throws gpt::Error: numerics when a log line finds max_skipped_steps or more skipped updates in a row, or training.on_divergence ends
  // the run, disk when the last save fails, peer when another process of the run is lost; and run::OutOfMemory. With the last two, and
  // where training.on_divergence ends it, the state of the last update is saved where that is possible.
  ExitCode run();

 private:
  void train();  // to the end, or until something ends it before
  ExitCode conclude();
  // Other programs take the memory: saves, and waits some seconds. Whether the run can go on.
  bool outlasts_shortage();
  // Throws run::OutOfMemory, once all that the step held has been released.
  [[noreturn]] void leave_out_of_memory(run::Shortage shortage);
  void take_decisions();  // those that are due
  // With training.max_time, by the clock of the first process.
  double seconds_spent() const;
  void keep_to_time();   // after an update
  void decide_length();  // as all processes have agreed
  void follow_length();  // that was decided
  // What the run is told on its way (gpt-board tell): between two updates, in all processes alike.
  void follow_requests();
  std::vector<control::Inbox::Asked> next_requests(std::chrono::milliseconds most);
  void carry_out(const std::vector<control::Inbox::Asked>& requests);
  control::Answer carried_out(const control::Request& request);
  void wait_while_paused();
  control::Answer pause(bool is_to_pause);
  void keep_decided();
  control::Answer save_as_told();
  control::Answer validate_as_told();
  control::Answer sample_as_told();
  control::Answer change_rate(double factor);
  control::Answer change_length(const control::Request& request);
  bool update();                // false: a signal came midway, and nothing has changed
  void release_memory() const;  // as training.release_memory says
  [[noreturn]] void leave_changed_data(const std::string& file);
  [[noreturn]] void leave_diverged(const std::string& why);
  // Whether something ends the run from outside. All processes ask at the same points, and all get the same answer.
  bool must_stop();
  bool is_interrupted() const { return interruption_.stops(); }  // as of the last time
  [[noreturn]] void leave_without_peer(const std::string& what);
  void agree_on_best();
  void follow_plateau(double loss);
  bool is_done() const;  // every step, or all that training.patience allows
  report::Moment moment() const { return moment_of(state_); }
  void keep_loss();     // keeps loss and norm of the last update for write_losses()
  void write_losses();  // those of the steps that were not logged
  bool may_save(bool all_come = false);
  bool is_logged(int64_t step) const;
  void close_log_interval();
  std::vector<report::DeviceUse> devices();  // of all processes, which ask together
  std::optional<report::LayerNorms> norms() const;
  std::vector<double> waits(double own) const;
  void close_epoch();
  Progress progress() const;
  void show_activity(const std::string& what, const std::string& how_far = "");  // other than training
  void tell_activity(const std::string& what, const std::string& how_far = "");
  void periodic_work();  // evaluation, sample, checkpoint: what is due after this step
  void evaluate();
  run::Evaluation measure(run::Evaluator& evaluator);  // changes nothing
  // Records of training.eval_tasks; nothing where something ends the run: then the validation is repeated when it goes on.
  std::optional<std::vector<report::TaskRecord>> evaluate_tasks();
  void tell_tasks(const std::vector<report::TaskRecord>& tasks);
  void warn_of_rise(const run::Evaluation& evaluation);
  std::optional<report::SampleRecord> sample();  // nothing without a tokenizer
  bool write_sample();                           // false: there is none
  bool save_now();                               // ckpt.pt; false: the disk has refused it
  void save_if_asked();                          // by SIGUSR1
  // Once, early in a long run: how close its speed comes to what the machine can do, while there is time to change something.
  void tell_speed();
  bool is_any(bool here) const;
  void write_efficiency(std::optional<report::EfficiencyRecord> efficiency);
  ExitCode stop();
  void finish();

  static constexpr const char *kUpdate = "update", *kTraining = "training";

  const TrainingConfig& training() const { return setup_.config.training; }
  const CadenceConfig& cadence() const { return training().cadence; }
  at::Device device() const { return setup_.device.device; }

  run::Run& run_;
  run::State& state_ = run_.state();
  const run::Setup& setup_ = run_.setup();
  const run::Plan& plan_ = run_.plan();
  const run::Folder& folder_;
  report::Listeners& listeners_;
  const TaskEvaluations tasks_;
  run::Forecast forecast_;
  CheckpointKeeper checkpoints_;
  run::Decisions decisions_;
  Divergence divergence_{run_, checkpoints_, decisions_, listeners_};
  ProgressBar bar_;
  MemoryWatch memory_watch_;
  DeviceWatch device_watch_;  // of this process
  // Where new weights may be on their way, they need connections of their own.
  run::Interruptions interruptions_{state_.division().speaks_within_updates() ? setup_.mesh.all->another()
                                                                              : setup_.mesh.all};
  run::Interruption interruption_;
  bool saves_ = false;     // SIGUSR1 has asked for a checkpoint
  control::Inbox* inbox_;  // null: at another process, or nobody may tell the run anything
  bool is_asked_ = false;  // all processes know that requests have come
  bool is_paused_ = false;
  const double spent_before_;            // seconds of training.max_time, in earlier starts
  std::optional<run::TimeBudget> time_;  // at the first process of a run that keeps to it
  int64_t wanted_steps_ = 0,
          agreed_steps_ = 0;  // the length of the run that the clock asks for, until it is decided; 0: as it is
  std::optional<report::StepRecord> last_step_;  // logged
  std::optional<double> last_val_loss_;
  bool is_rise_announced_ = false;
  EfficiencyMeter efficiency_{setup_};

  Stopwatch stopwatch_;                  // training alone
  const Stopwatch since_start_;          // all of it
  int64_t first_step_ = 0, tokens_ = 0;  // since this start
  struct Mark {
    int64_t step = 0, tokens = 0;
    double seconds = 0, waited = 0;
  };
  report::TimingRecord settled_;  // all steps that were logged after the warm-up
  double waited_ = 0;             // seconds that updates waited for other processes
  Mark logged_, epoch_;           // where the log interval and the epoch began
  double learning_rate_ = 0;      // of the last update
  std::vector<std::pair<report::LossRecord, at::Tensor>>
      unwritten_losses_;  // the tensors hold loss and norm, on the device
  const char* activity_ = kUpdate;
};

}  // namespace gpt::train
