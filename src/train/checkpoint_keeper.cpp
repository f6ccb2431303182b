#include "gpt/train/checkpoint_keeper.h"

#include <fmt/format.h>

#include <utility>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/core/process_memory.h"
#include "gpt/train/stopwatch.h"

namespace gpt {

CheckpointKeeper::CheckpointKeeper(run::State& state, const run::Folder& folder, const run::Plan& plan,
                                   int64_t keep_last, Listeners& listeners, run::Forecast& forecast, bool is_saved)
    : state_(state),
      folder_(folder),
      plan_(plan),
      keep_last_(keep_last),
      listeners_(listeners),
      forecast_(forecast),
      is_saved_(is_saved || state.step == 0),
      has_saved_(is_saved),
      saved_step_(state.step) {}

void CheckpointKeeper::state_changed() {
  is_saved_ = false;
  process::set_unsaved_updates(state_.step - saved_step_);
}

bool CheckpointKeeper::interval_has_passed() const {
  if (plan_.checkpoint_seconds > 0) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - saved_at_).count() >=
           plan_.checkpoint_seconds;
  }
  return run::due(plan_.checkpoint_every, state_.step);
}

// A state that may have gone wrong before a streak of skipped updates does not overwrite one known to be good: the checkpoint
// waits until an update has been applied again.
bool CheckpointKeeper::is_due() {
  waits_ = waits_ || interval_has_passed();
  return waits_ && state_.skipped_in_a_row() == 0;  // sync: only when something is to be saved
}

void CheckpointKeeper::save_due() {
  waits_ = false;
  save_last(/*must=*/false);
  if (keep_last_ == 0) return;
  save(folder_.numbered_path(state_.step), /*must=*/false);
  folder_.remove_old_numbered(keep_last_);
}

void CheckpointKeeper::save_best(double loss) {
  const double before = std::exchange(state_.best_val_loss, loss);
  unsaved_best_.reset();
  if (save(folder_.best_path(), /*must=*/false)) {
    is_saved_ = false;  // ckpt.pt has another best loss
    return;
  }
  state_.best_val_loss = before;
  unsaved_best_ = loss;
}

void CheckpointKeeper::save_the_rest() {
  require_folder();
  if (unsaved_best_ && state_.evaluated_step == state_.step) save_best(*unsaved_best_);
  if (!is_saved_) save_last(/*must=*/true);
}

void CheckpointKeeper::require_folder() {
  if (folder_.is_in_place()) return;
  const run::Folder::Refuge refuge = folder_.refuge();
  save_checkpoint(refuge.path + "/" + kLastCheckpoint, state_.capture());
  process::set_unsaved_updates(0);
  throw Error(ExitCode::disk,
              fmt::format("{} is no longer the folder in which this run began ({}): step {} is saved in {}; the same "
                          "command with --output_dir {} resumes it",
                          folder_.path(), refuge.reason, state_.step, refuge.now, refuge.now));
}

bool CheckpointKeeper::save(const std::string& path, bool must) {
  require_folder();
  const Stopwatch watch;
  const bool is_last = path == folder_.checkpoint_path();
  if (is_last) saved_at_ = std::chrono::steady_clock::now();
  is_saving_ = true;
  process_memory::sample();
  try {
    save_checkpoint(path, state_.capture());
  } catch (const Error& error) {
    // A full disk is no reason to lose the run: the old file remains, and the next interval tries again.
    if (must || error.code() != ExitCode::disk) throw;
    is_saving_ = false;
    log::warn(fmt::format("{}; training continues, and the next checkpoint tries again", error.what()));
    return false;
  }
  is_saving_ = false;
  listeners_.event({state_.step, fmt::format("saved {}", path)});
  if (!is_last) return true;
  forecast_.took(run::Forecast::kCheckpoint, watch.running_seconds());
  is_saved_ = has_saved_ = true;
  saved_step_ = state_.step;
  process::set_unsaved_updates(0);
  return true;
}

}  // namespace gpt
