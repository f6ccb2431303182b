// What of a run is on disk: ckpt.pt, the best checkpoint, the numbered ones, those for a rollback and before a decay, when each is due, and
// what they lack. Those of one step are one file with several names, where the file system allows it. They are written at once or, as training.async_checkpoint says, while training goes on: those of one step from one copy of
// the state. Where processes have divided the state or the model, they write each file together, and the first one says which files those are.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpt/checkpoint/divided_save.h"
#include "gpt/distributed/communicator.h"
#include "gpt/report/listener.h"
#include "gpt/run/folder.h"
#include "gpt/run/forecast.h"
#include "gpt/run/plan.h"
#include "gpt/run/state.h"
#include "gpt/train/background_save.h"
#include "gpt/train/save_mode.h"

namespace gpt::train {

// When checkpoints are due, and which of them stay.
struct CheckpointCadence {
  run::Plan plan;
  CadenceConfig config = {};
};

class CheckpointKeeper {
 public:
  // `is_saved`: ckpt.pt of the folder holds this state already. A process that is not the first one of the run has the same state and
  // saves nothing, unless they have divided it; then all come here, and whenever something is written.
  CheckpointKeeper(run::State& state, const run::Folder& folder, const CheckpointCadence& cadence,
                   report::Listeners& listeners, run::Forecast& forecast, bool is_saved);

  void state_changed();  // by an update or an evaluation: ckpt.pt does not hold it yet
  bool is_due();         // a checkpoint is, and the last update was applied
  // Where processes have divided state or model, all must save at the same step: whether this one's clock says, once, that it is time, and that
  // all have agreed on that.
  bool take_time();
  void agree_on_time() { waits_ = true; }
  // ckpt.pt, with keep_last a numbered one, and one for rollbacks where none of those waits to be proven.
  void save_due();

  // The state was evaluated as the best so far. Its loss becomes the run's best only once the file that holds it is saved:
  // otherwise a later evaluation must count as worth saving again, so that settle() comes before it.
  void save_best(double loss);

  // The learning rate begins to decay: a longer run goes on from here (lr_schedule: wsd). It replaces one of an earlier decay.
  void save_stable() { wanted_.stable = true; }

  // Writes what the last three asked for, at once or in the background; must be called before the state changes. Waits for what is still
  // being written.
  void begin_writing();
  void notice_written();  // takes note of what has been written meanwhile
  void settle();          // the same, after it has waited for it; the first time that training waits, a line says so

  // ckpt.pt, at once. Where the disk refuses it, training continues, unless the file `must` be there: then throws gpt::Error(disk).
  void save_last(bool must);
  void save_the_rest();     // at the end: what ckpt.pt lacks, and a best checkpoint that could not be written before
  void leave_background();  // as settle(), but an error is a line, and the copy's memory is free then

  // Where the last update is a spike: the checkpoint to go back to, once all that is being written has been. It is the last that
  // training.spike_window updates have followed without a spike, or where there is none that can be read, the other one for a rollback.
  // Nothing: there is none. All processes of the run call it and get the same one.
  std::optional<checkpoint::Checkpoint> before_spike(distributed::Communicator& ranks);

  // Before anything is written to the run's folder: where that is not in place any more, ckpt.pt is saved in its refuge, and the
  // run ends with gpt::Error(disk). Where processes have divided state or model, all come here; but the first one may come alone with
  // `is_alone`, and then what ckpt.pt lacks is lost.
  void require_folder(bool is_alone = false);

  // What the first process says, where processes have divided state or model and all come here; otherwise this one's own.
  bool first_says(bool own);

  bool is_saved() const { return is_saved_; }         // ckpt.pt holds the current state
  bool has_saved() const { return has_saved_; }       // ckpt.pt is there
  int64_t saved_step() const { return saved_step_; }  // the step of ckpt.pt
  bool is_saving() const { return is_saving_; }       // one has begun and has not ended: an exception left it

 private:
  // The files that one state is to be written to, in this order.
  struct Wanted {
    std::optional<double> best;  // the best checkpoint, whose loss this is
    double best_before = 0;      // the run's best loss without it
    bool for_rollback = false, stable = false, last = false, numbered = false;
  };
  struct UnsavedBest {
    double loss;
    int64_t step;
  };
  struct Written : Wanted {
    int64_t step = 0, changes = 0;
  };

  bool time_has_passed() const;
  bool interval_has_passed() const;
  bool was_due_while_skipping() const;
  bool begins_waiting();
  bool takes_part() const { return is_first_ || together_; }
  Wanted agreed(Wanted wanted);
  bool all_can(bool own);
  checkpoint::Checkpoint captured() const;
  void write(const std::string& path, const checkpoint::Checkpoint& captured) const;
  bool link(const std::string& from, const std::string& to) const;
  void make_room() const;
  void warn_of_refusal(const std::string& why, bool is_best) const;
  std::string what_to_remove() const;
  [[noreturn]] void end_with_first();
  bool may_write() const;
  bool copy_state();
  std::vector<std::string> paths_of(const Wanted& wanted) const;
  void write_wanted();
  void write_and_measure(const Wanted& wanted);
  bool write_now(const Wanted& wanted);           // false: the disk refused some of it
  bool save(const std::string& path, bool must);  // false: the disk refused it
  bool save_as_newest(const std::string& path);
  void tell_missing_best() const;
  void finish_background();
  void take_note(const BackgroundSave::Outcome& outcome);
  void give_up_best(const Wanted& wanted, int64_t step);
  void has_written(const std::string& path, int64_t step, int64_t changes);

  run::State& state_;
  const run::Folder& folder_;
  const run::Plan plan_;
  const CadenceConfig cadence_;
  report::Listeners& listeners_;
  run::Forecast& forecast_;
  SaveMode mode_;
  const bool is_first_;
  struct Together {
    std::shared_ptr<distributed::Communicator> ranks;  // for what is written, as a thread of its own may do
    checkpoint::Writers writers;
  };
  std::optional<Together> together_;  // where processes have divided the state or the model
  bool is_saved_, has_saved_;
  int64_t saved_step_;
  int64_t changes_ = 0;  // of the state so far
  struct Newest {
    std::string path;
    int64_t changes;  // of the state that it holds
  };
  std::optional<Newest>
      newest_;  // the file that was written last, unless the state has changed in a way that is not counted
  Wanted wanted_;
  Written in_background_;
  BackgroundSave background_;
  bool is_slowness_announced_ = false;
  bool is_saving_ = false;
  bool waits_ = false;                       // a checkpoint is due, but the last update was skipped
  std::optional<UnsavedBest> unsaved_best_;  // an evaluation that was the best, but could not be saved
  std::chrono::steady_clock::time_point saved_at_ = std::chrono::steady_clock::now();  // or last tried to
};

}  // namespace gpt::train
