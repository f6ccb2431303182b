// What of a run is on disk: ckpt.pt, the best checkpoint and the numbered ones, when each is due, and what they lack.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "gpt/report/listener.h"
#include "gpt/run/folder.h"
#include "gpt/run/forecast.h"
#include "gpt/run/plan.h"
#include "gpt/run/state.h"

namespace gpt {

class CheckpointKeeper {
 public:
  // `is_saved`: ckpt.pt of the folder holds this state already.
  CheckpointKeeper(run::State& state, const run::Folder& folder, const run::Plan& plan, int64_t keep_last,
                   Listeners& listeners, run::Forecast& forecast, bool is_saved);

  void state_changed();  // by an update or an evaluation: ckpt.pt does not hold it yet
  bool is_due();         // a checkpoint is, and the last update was applied
  void save_due();       // ckpt.pt and, with keep_last, a numbered one

  // The state was evaluated as the best so far. Its loss becomes the run's best only once the file that holds it is saved:
  // otherwise a later evaluation must count as worth saving again.
  void save_best(double loss);

  // ckpt.pt. Where the disk refuses it, training continues, unless the file `must` be there: then throws gpt::Error(disk).
  void save_last(bool must) { save(folder_.checkpoint_path(), must); }
  void save_the_rest();  // at the end: what ckpt.pt lacks, and a best checkpoint that could not be written before

  // Before anything is written to the run's folder: where that is not in place any more, ckpt.pt is saved in its refuge, and the
  // run ends with gpt::Error(disk).
  void require_folder();

  bool is_saved() const { return is_saved_; }         // ckpt.pt holds the current state
  bool has_saved() const { return has_saved_; }       // ckpt.pt is there
  int64_t saved_step() const { return saved_step_; }  // the step of ckpt.pt
  bool is_saving() const { return is_saving_; }       // one has begun and has not ended: an exception left it

 private:
  bool interval_has_passed() const;
  bool save(const std::string& path, bool must);  // false: the disk refused it

  run::State& state_;
  const run::Folder& folder_;
  const run::Plan plan_;
  const int64_t keep_last_;
  Listeners& listeners_;
  run::Forecast& forecast_;
  bool is_saved_, has_saved_;
  int64_t saved_step_;
  bool is_saving_ = false;
  bool waits_ = false;                  // a checkpoint is due, but the last update was skipped
  std::optional<double> unsaved_best_;  // the loss of the last evaluation, if it was the best and could not be saved
  std::chrono::steady_clock::time_point saved_at_ = std::chrono::steady_clock::now();  // or last tried to
};

}  // namespace gpt
