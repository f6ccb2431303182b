#include "gpt/train/checkpoint_keeper.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/core/process_memory.h"
#include "gpt/core/processors.h"
#include "gpt/train/stopwatch.h"

namespace gpt::train {
namespace {

bool takes_all_processors(const run::State& state) {
  return state.model.device().is_cpu() && at::get_num_threads() * state.division().processes() >= usable_processors();
}

}  // namespace

CheckpointKeeper::CheckpointKeeper(run::State& state, const run::Folder& folder, const CheckpointCadence& cadence,
                                   report::Listeners& listeners, run::Forecast& forecast, bool is_saved)
    : state_(state),
      folder_(folder),
      plan_(cadence.plan),
      cadence_(cadence.config),
      listeners_(listeners),
      forecast_(forecast),
      mode_(cadence_.async_checkpoint, takes_all_processors(state), [this](bool own) { return all_can(own); }),
      is_first_(state.division().all->is_first()),
      is_saved_(is_saved || state.step == 0 || !is_first_),
      has_saved_(is_saved),
      saved_step_(state.step),
      waits_(was_due_while_skipping()) {
  for (std::optional<int64_t>* step : {&state.proven_step, &state.waiting_step}) {
    std::error_code ignored;
    const bool is_there = *step && std::filesystem::exists(folder.rollback_path(**step), ignored);
    if (!cadence_.divergence.goes_back() || !is_there) step->reset();
  }
  if (const parallel::Division& division = state.division(); division.divides_checkpoints()) {
    together_ = Together{division.all->another(), checkpoint::find_writers(folder.path(), *division.all)};
    if (together_->writers == checkpoint::Writers::first)
      log::info(
          "The processes do not see the same output_dir: the first one writes checkpoints, and gets the parts of the others");
  }
}

bool CheckpointKeeper::first_says(bool own) { return together_ ? state_.division().all->first_says(own) : own; }

bool CheckpointKeeper::all_can(bool own) { return together_ ? !state_.division().all->is_any(!own) : own; }

// What the first process wants: another one may not have learned yet that a file could not be written.
CheckpointKeeper::Wanted CheckpointKeeper::agreed(Wanted wanted) {
  if (!together_) return wanted;
  const at::Tensor said = at::tensor({wanted.best ? 1 : 0, wanted.for_rollback ? 1 : 0, wanted.stable ? 1 : 0,
                                      wanted.last ? 1 : 0, wanted.numbered ? 1 : 0},
                                     at::kLong);
  state_.division().all->broadcast(said);
  const auto is_said = [&said](int64_t i) { return said[i].item<int64_t>() != 0; };
  wanted.for_rollback = is_said(1), wanted.stable = is_said(2), wanted.last = is_said(3), wanted.numbered = is_said(4);
  if (is_said(0) != wanted.best.has_value())
    wanted.best = is_said(0) ? std::optional(state_.best_val_loss) : std::nullopt;
  return wanted;
}

checkpoint::Checkpoint CheckpointKeeper::captured() const {
  return together_ ? checkpoint::share_of(state_.capture(), *together_->ranks, together_->writers) : state_.capture();
}

void CheckpointKeeper::write(const std::string& path, const checkpoint::Checkpoint& captured) const {
  together_ ? checkpoint::save_checkpoint(path, captured, *together_->ranks, together_->writers)
            : checkpoint::save_checkpoint(path, captured);
}

// One of the same state. The others hear whether the first process could.
bool CheckpointKeeper::link(const std::string& from, const std::string& to) const {
  const bool is_linked = is_first_ && link_file(from, to);
  return together_ ? together_->ranks->first_says(is_linked) : is_linked;
}

// On a disk that is full the numbered checkpoint goes before that the next one would replace.
void CheckpointKeeper::make_room() const {
  if (!is_first_ || cadence_.keep_last == 0) return;
  if (free_disk_space(folder_.path()) < state_.checkpoint_bytes()) folder_.remove_old_numbered(cadence_.keep_last - 1);
}

// A full disk is no reason to lose the run: the old file remains, and the next interval tries again.
void CheckpointKeeper::warn_of_refusal(const std::string& why, bool is_best) const {
  log::warn(fmt::format("{}; training continues, and the next {} tries again{}", why,
                        is_best ? "validation with a new best loss" : "checkpoint", what_to_remove()));
}

// Empty: nothing that the run could do without.
std::string CheckpointKeeper::what_to_remove() const {
  const std::vector<std::string> numbered = folder_.numbered();
  return numbered.empty() ? "" : fmt::format("; to make room, remove {}", fmt::join(numbered, ", "));
}

void CheckpointKeeper::tell_missing_best() const {
  if (!unsaved_best_ || !is_first_) return;
  log::warn(fmt::format("the best validation loss, {:.4f} at step {}, is in no checkpoint: {} could not be written",
                        unsaved_best_->loss, unsaved_best_->step, folder_.best_path()));
}

void CheckpointKeeper::state_changed() {
  if (!is_first_) return;
  ++changes_;
  is_saved_ = false;
  process::set_unsaved_updates(state_.step - saved_step_);
}

bool CheckpointKeeper::time_has_passed() const {
  return plan_.checkpoint_seconds > 0 &&
         std::chrono::duration<double>(std::chrono::steady_clock::now() - saved_at_).count() >=
             plan_.checkpoint_seconds;
}

bool CheckpointKeeper::take_time() {
  if (!is_first_ || !together_ || !time_has_passed()) return false;
  saved_at_ = std::chrono::steady_clock::now();
  return true;
}

bool CheckpointKeeper::interval_has_passed() const {
  if (plan_.checkpoint_seconds > 0) return is_first_ && !together_ && time_has_passed();
  return run::due(plan_.checkpoint_every, state_.step);
}

// Whether a checkpoint was due among skipped updates, for a run that stopped there and goes on.
bool CheckpointKeeper::was_due_while_skipping() const {
  const int64_t every = plan_.checkpoint_every;
  return every > 0 && state_.step % every < state_.skipped_in_a_row();
}

// A state that may have gone wrong before a streak of skipped updates does not overwrite one known to be good: the checkpoint
// waits until an update has been applied again.
bool CheckpointKeeper::is_due() {
  waits_ = waits_ || interval_has_passed();
  return waits_ && state_.skipped_in_a_row() == 0;  // sync: only when something is to be saved
}

void CheckpointKeeper::save_due() {
  waits_ = false;
  wanted_.last = true;
  wanted_.for_rollback = begins_waiting();
  wanted_.numbered = cadence_.keep_last > 0;
}

// One checkpoint at a time waits to be proven, so that two files are enough, whatever the interval.
bool CheckpointKeeper::begins_waiting() {
  const DivergenceConfig& divergence = cadence_.divergence;
  if (!divergence.goes_back()) return false;
  settle();  // it is known then whether the file of the one that waits is there
  if (state_.waiting_step && state_.step - *state_.waiting_step >= divergence.spike_window)
    state_.proven_step = std::exchange(state_.waiting_step, std::nullopt);
  if (state_.waiting_step) return false;
  // What is removed would not be gone back to by a run that resumes before this step either: it does the same again.
  if (is_first_) folder_.remove_rollbacks_but(state_.proven_step);
  state_.waiting_step = state_.step;
  newest_.reset();
  return true;
}

void CheckpointKeeper::save_best(double loss) {
  wanted_.best = loss;
  wanted_.best_before = std::exchange(state_.best_val_loss, loss);
  unsaved_best_.reset();
  newest_.reset();
}

std::vector<std::string> CheckpointKeeper::paths_of(const Wanted& wanted) const {
  std::vector<std::string> paths;
  if (wanted.best) paths.push_back(folder_.best_path());
  if (wanted.for_rollback) paths.push_back(folder_.rollback_path(state_.step));  // before ckpt.pt, which names it
  if (wanted.stable)
    paths.push_back(folder_.stable_path(state_.step));  // so that it is there once ckpt.pt is beyond it
  if (wanted.last) paths.push_back(folder_.checkpoint_path());
  if (wanted.numbered) paths.push_back(folder_.numbered_path(state_.step));
  return paths;
}

void CheckpointKeeper::begin_writing() {
  if (paths_of(wanted_).empty()) return;
  state_.prepare_capture();
  takes_part() ? write_wanted() : (void)(wanted_ = {});
  state_.discard();
}

void CheckpointKeeper::write_wanted() {
  const Stopwatch watch;
  settle();
  require_folder();
  const Wanted wanted = agreed(std::exchange(wanted_, {}));
  if (wanted.last) {
    saved_at_ = std::chrono::steady_clock::now();
    make_room();
  }
  if (!mode_.is_background(state_.checkpoint_bytes()) || !copy_state()) return write_and_measure(wanted);
  background_.begin(
      {.paths = paths_of(wanted),
       .best_before = wanted.best ? wanted.best_before : state_.best_val_loss,
       .may_write = [this] { return may_write(); },
       .save = [this](const std::string& path, const checkpoint::Checkpoint& state) { write(path, state); },
       .link = [this](const std::string& from, const std::string& to) { return link(from, to); }});
  in_background_ = {wanted, state_.step, changes_};
  process_memory::sample();
  if (wanted.last) forecast_.took(run::Forecast::kCheckpoint, watch.running_seconds());
}

// In the background.
bool CheckpointKeeper::may_write() const {
  const bool is_in_place = folder_.is_in_place();
  return together_ ? together_->ranks->first_says(is_in_place) : is_in_place;
}

// False where there is no memory for it.
bool CheckpointKeeper::copy_state() {
  bool is_copied = true;
  try {
    background_.copy(captured());
  } catch (const std::bad_alloc&) { is_copied = false; }
  if (all_can(is_copied)) return true;
  background_.release();
  log::info("Training waits until the checkpoint is written, because there is no memory for a copy of the state now");
  return false;
}

// The mode may depend on what the first one took.
void CheckpointKeeper::write_and_measure(const Wanted& wanted) {
  const Stopwatch watch;
  const double processors_before = processor_seconds();
  if (write_now(wanted)) mode_.measured(watch.running_seconds(), processor_seconds() - processors_before);
}

bool CheckpointKeeper::write_now(const Wanted& wanted) {
  bool is_complete = true;
  const auto write = [&](const std::string& path) {
    const bool is_written = save_as_newest(path) || save(path, /*must=*/false);
    is_complete = is_complete && is_written;
    return is_written;
  };
  if (wanted.best && !write(folder_.best_path())) give_up_best(wanted, state_.step);
  if (wanted.for_rollback && !write(folder_.rollback_path(state_.step))) state_.waiting_step.reset();
  if (wanted.stable && write(folder_.stable_path(state_.step)) && is_first_) folder_.remove_stable_but(state_.step);
  if (wanted.last) write(folder_.checkpoint_path());
  if (wanted.numbered) {
    write(folder_.numbered_path(state_.step));
    if (is_first_) folder_.remove_old_numbered(cadence_.keep_last);
  }
  return is_complete;
}

void CheckpointKeeper::notice_written() {
  if (background_.has_ended()) settle();
}

void CheckpointKeeper::settle() {
  if (is_first_ && background_.is_under_way() && !background_.has_ended() &&
      !std::exchange(is_slowness_announced_, true)) {
    log::warn(
        fmt::format("step {}: training waits, because the checkpoint of step {} is still being written: lengthen "
                    "training.checkpoint_interval, or write to a faster disk",
                    state_.step, in_background_.step));
  }
  finish_background();
}

void CheckpointKeeper::finish_background() {
  if (background_.is_under_way()) take_note(background_.take());
}

void CheckpointKeeper::take_note(const BackgroundSave::Outcome& outcome) {
  const Written of = std::exchange(in_background_, {});
  const auto& written = outcome.written;
  const auto is_written = [&written](const std::string& path) {
    return std::find(written.begin(), written.end(), path) != written.end();
  };
  for (const std::string& path : written) has_written(path, of.step, of.changes);
  if (of.numbered && is_first_) folder_.remove_old_numbered(cadence_.keep_last);
  if (of.best && !is_written(folder_.best_path())) give_up_best(of, of.step);
  if (of.for_rollback && !is_written(folder_.rollback_path(of.step))) state_.waiting_step.reset();
  if (of.stable && is_written(folder_.stable_path(of.step)) && is_first_) folder_.remove_stable_but(of.step);
  for (const std::string& why : outcome.refused)
    if (is_first_) warn_of_refusal(why, of.best && why.find(folder_.best_path()) != std::string::npos);
  if (!outcome.refused.empty()) newest_.reset();
  if (!outcome.error) return;
  is_saving_ = true;
  std::rethrow_exception(outcome.error);
}

void CheckpointKeeper::give_up_best(const Wanted& wanted, int64_t step) {
  state_.best_val_loss = wanted.best_before;
  unsaved_best_ = {*wanted.best, step};
}

void CheckpointKeeper::save_last(bool must) {
  if (!takes_part()) return;
  finish_background();
  const Wanted left = std::exchange(wanted_, {});  // by an error
  if (left.best) give_up_best(left, state_.step);
  if (!save_as_newest(folder_.checkpoint_path())) save(folder_.checkpoint_path(), must);
}

void CheckpointKeeper::save_the_rest() {
  if (!takes_part()) return;
  finish_background();
  require_folder();
  if (!wanted_.best && unsaved_best_ && unsaved_best_->step == state_.step) save_best(unsaved_best_->loss);
  Wanted rest = agreed(std::exchange(wanted_, {}));
  rest.last = false;  // below, where it must be written
  write_now(rest);
  if (first_says(!is_saved_)) save_last(/*must=*/true);
  tell_missing_best();
}

std::optional<checkpoint::Checkpoint> CheckpointKeeper::before_spike(distributed::Communicator& ranks) {
  finish_background();
  std::array steps{state_.proven_step, state_.waiting_step};
  const int64_t before = state_.step - 1;  // the spike's update is none that follows without one
  if (state_.waiting_step && before - *state_.waiting_step >= cadence_.divergence.spike_window)
    std::swap(steps.front(), steps.back());
  std::optional<checkpoint::Checkpoint> found;
  for (const std::optional<int64_t> step : steps) {
    if (!is_first_ || found || !step) continue;
    try {
      found = folder_.load(folder_.rollback_path(*step));
    } catch (const Error& error) { log::warn(error.what()); }
  }
  constexpr int64_t kNone = -1;
  const int64_t step = ranks.first_says(found ? found->step : kNone);
  if (!found && step != kNone) found = folder_.load(folder_.rollback_path(step));
  return found;
}

void CheckpointKeeper::leave_background() {
  try {
    finish_background();
  } catch (const std::exception& error) {
    log::warn(fmt::format("the checkpoint could not be written in the background: {}", first_line(error.what())));
    is_saving_ = false;
  }
  background_.release();
}

void CheckpointKeeper::require_folder(bool is_alone) {
  const bool is_in_place = folder_.is_in_place();
  if (is_alone ? is_in_place : first_says(is_in_place)) return;
  leave_background();
  if (!is_alone) state_.prepare_capture();
  if (const Wanted left = std::exchange(wanted_, {}); left.best) give_up_best(left, state_.step);
  if (!is_first_) {  // which writes alone: nobody else can reach its folder
    checkpoint::save_checkpoint(folder_.checkpoint_path(),
                                checkpoint::share_of(state_.capture(), *together_->ranks, checkpoint::Writers::first),
                                *together_->ranks, checkpoint::Writers::first);
    end_with_first();
  }
  const run::Folder::Refuge refuge = folder_.refuge();
  if (together_ && is_alone) {
    throw Error(
        ExitCode::disk,
        fmt::format(
            "{} is no longer the folder in which this run began ({}): the updates after step {} are lost, "
            "because each process has a part of the state (distributed.zero, tensor_parallel, pipeline_parallel)",
            folder_.path(), refuge.reason, saved_step_));
  }
  if (together_) together_->writers = checkpoint::Writers::first;
  write(refuge.path + "/" + checkpoint::kLastCheckpoint, captured());
  process::set_unsaved_updates(0);
  throw Error(ExitCode::disk,
              fmt::format("{} is no longer the folder in which this run began ({}): step {} is saved in {}; the same "
                          "command with --output_dir {} resumes it",
                          folder_.path(), refuge.reason, state_.step, refuge.now, refuge.now));
}

// Ends as the first process does, which says why.
void CheckpointKeeper::end_with_first() {
  for (;;) (void)state_.division().all->first_says(false);
}

bool CheckpointKeeper::save(const std::string& path, bool must) {
  require_folder();
  const Stopwatch watch;
  const bool is_last = path == folder_.checkpoint_path();
  if (is_last) {
    saved_at_ = std::chrono::steady_clock::now();
    make_room();
  }
  is_saving_ = true;
  process_memory::sample();
  try {
    write(path, captured());
  } catch (const Error& error) {
    if (must && error.code() == ExitCode::disk && !is_first_) end_with_first();
    if (error.code() != ExitCode::disk) throw;
    newest_.reset();  // the state takes back what it says of this file
    if (must) throw Error(error.code(), error.what() + what_to_remove());
    is_saving_ = false;
    if (is_first_) warn_of_refusal(error.what(), path == folder_.best_path());
    return false;
  }
  is_saving_ = false;
  if (is_last) forecast_.took(run::Forecast::kCheckpoint, watch.running_seconds());
  has_written(path, state_.step, changes_);
  return true;
}

// Where the file that was written last holds this state. False: this one must be written.
bool CheckpointKeeper::save_as_newest(const std::string& path) {
  const bool holds_this = newest_ && newest_->changes == changes_;
  if (!first_says(is_first_ && holds_this)) return false;
  require_folder();
  if (!link(holds_this ? newest_->path : "", path)) return false;
  has_written(path, state_.step, changes_);
  return true;
}

// `changes`: of the state, when it was what the file holds.
void CheckpointKeeper::has_written(const std::string& path, int64_t step, int64_t changes) {
  if (!is_first_) return;
  newest_ = {path, changes};
  listeners_.event({.step = step, .what = fmt::format("saved {}", path), .is_routine = true});
  if (path == folder_.best_path()) is_saved_ = false;  // ckpt.pt has another best loss
  if (path != folder_.checkpoint_path()) return;
  has_saved_ = true;
  is_saved_ = changes == changes_;
  saved_step_ = step;
  process::set_unsaved_updates(state_.step - step);
}

}  // namespace gpt::train
