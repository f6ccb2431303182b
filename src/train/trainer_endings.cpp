// How a run ends: done, stopped, or by what it cannot go on with.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/device/memory.h"
#include "gpt/report/console.h"
#include "gpt/run/measured_memory.h"
#include "gpt/train/trainer.h"

namespace gpt::train {
namespace {

std::string stop_signal_name() { return fmt::format("SIG{}", sigabbrev_np(process::stop_signal())); }

}  // namespace

// When the run ends before it should: the state is whole, and this process has all of it, or all processes come here.
bool Trainer::may_save(bool all_come) {
  const bool is_to_be_saved = !checkpoints_.is_saved() && !run_.step().is_applying() && state_.can_capture();
  return all_come ? checkpoints_.first_says(is_to_be_saved)
                  : is_to_be_saved && !state_.division().divides_checkpoints();
}

// The state is that of the last update, unless the loss came while it changed; then the last checkpoint remains.
void Trainer::leave_without_peer(const std::string& what) {
  bar_.close();
  if (may_save()) {
    write_losses();
    checkpoints_.save_last(/*must=*/false);
  }
  listeners_.stop({state_.step, fmt::format("by an error ({})", first_line(what))});
  // Only the first process knows what is saved.
  const std::string rest =
      !setup_.mesh.all->is_first()
          ? fmt::format("the same command resumes from the last checkpoint in {}, if there is one", folder_.path())
      : checkpoints_.has_saved() ? fmt::format("the same command resumes after step {}, which is saved in {}",
                                               checkpoints_.saved_step(), folder_.checkpoint_path())
                                 : "nothing had been saved: the run begins anew";
  throw Error(ExitCode::peer, fmt::format("{}; {}", what, rest));
}

// All processes come here, and again to train(), which repeats what the shortage cut short.
bool Trainer::outlasts_shortage() {
  checkpoints_.settle();
  state_.prepare_capture();
  if (may_save(/*all_come=*/true)) checkpoints_.save_last(/*must=*/false);
  state_.discard();
  const std::string seen = fmt::format("other programs take the memory, of which {} was free",
                                       format_bytes(static_cast<double>(memory_watch_.free_when_seen())));
  log::warn(fmt::format("step {}: {}; the run waits up to {} for it", with_commas(state_.step), seen,
                        plural(MemoryWatch::kMostSeconds, "second")));
  listeners_.event({state_.step, seen});
  tell_activity("waiting for memory that other programs take");
  const bool is_over = memory_watch_.wait_until_over([this](bool own) {
    return setup_.mesh.all->is_any(own && process::stop_signal() == 0);  // after a signal nobody waits
  });
  if (!is_over) return false;
  if (!must_stop()) log::info("There is memory again: the run goes on");  // processes hear what was said before
  return true;
}

// Where memory ran out before the update itself, weights and optimizer are those of the last update.
void Trainer::leave_out_of_memory(run::Shortage shortage) {
  shortage.free =
      static_cast<double>(shortage.is_taken_by_others ? memory_watch_.free_when_seen() : device::free_bytes(device()));
  shortage.held = run::memory_at_peak(state_, run_.step());
  const char* const activity = checkpoints_.is_saving() ? "checkpoint" : activity_;
  shortage.where = shortage.is_taken_by_others ? fmt::format("after step {}", state_.step)
                   : activity == kUpdate       ? fmt::format("in step {}", state_.step + 1)
                                               : fmt::format("in the {} after step {}", activity, state_.step);
  bar_.close();
  try {
    write_losses();
    checkpoints_.leave_background();
    if (may_save(/*all_come=*/shortage.is_taken_by_others)) checkpoints_.save_last(/*must=*/false);
    listeners_.stop({state_.step, fmt::format("by an error ({})", to_text(shortage))});
  } catch (const std::exception& failure) {  // there is no memory for that either: what was saved before remains
    log::warn(fmt::format("step {} could not be saved: {}", state_.step, first_line(failure.what())));
  }
  shortage.is_saved = checkpoints_.has_saved();
  shortage.what_is_left =
      !shortage.is_saved
          ? "Nothing had been saved: the run begins anew"
          : fmt::format("Step {} is saved in {}: the same command{} resumes from there", checkpoints_.saved_step(),
                        folder_.checkpoint_path(), shortage.is_taken_by_others ? "" : " with such a setting");
  throw run::OutOfMemory(std::move(shortage));
}

// Nothing is learned from a file that another process changes. The state is that of the last update.
void Trainer::leave_changed_data(const std::string& file) {
  bar_.close();
  write_losses();
  checkpoints_.settle();
  if (may_save()) checkpoints_.save_last(/*must=*/false);
  const std::string then = checkpoints_.has_saved()
                               ? fmt::format("the same command resumes after step {}", checkpoints_.saved_step())
                               : "begin anew: nothing had been saved";
  throw Error(ExitCode::data,
              fmt::format("{} was changed while it was in use: restore its content, then {}", file, then));
}

// The update with the spike was not applied, so that the state is worth keeping: whoever starts the same command again decides to go on.
void Trainer::leave_diverged(const std::string& why) {
  bar_.close();
  keep_loss();
  write_losses();
  checkpoints_.settle();
  state_.prepare_capture();  // all processes come here
  if (may_save(/*all_come=*/true)) checkpoints_.save_last(/*must=*/false);
  throw Error(
      ExitCode::numerics,
      fmt::format("step {}: {}: the update was not applied, and the run ends; lower training.learning_rate or look at "
                  "the data there, and the same command goes on after step {}",
                  state_.step, why, checkpoints_.saved_step()));
}

ExitCode Trainer::stop() {
  checkpoints_.save_the_rest();
  write_efficiency(efficiency_.of(settled_));  // whoever stops a run does not wait until the machine is measured
  listeners_.stop({state_.step, fmt::format("by {}; the same command resumes it", stop_signal_name())});
  if (state_.step == 0) {
    log::info(fmt::format("Stopped by {} before the first update: there was nothing to save", stop_signal_name()));
  } else {
    log::info(fmt::format("Stopped by {} after step {}: saved {}; the same command resumes from there",
                          stop_signal_name(), state_.step, folder_.checkpoint_path()));
  }
  return process::stop_code();
}

// Several processes would measure the machine side by side, each at another moment.
void Trainer::tell_speed() {
  constexpr double kLongRun = 600, kLow = 0.5;
  if (efficiency_.has_tried() || setup_.mesh.all->size() > 1 || forecast_.remaining_seconds(state_.step) < kLongRun)
    return;
  const auto efficiency = efficiency_.measure(settled_, settled_.seconds);
  if (!efficiency) return;
  write_efficiency(efficiency);
  const auto seconds = settled_.seconds, tokens = static_cast<double>(settled_.tokens);
  log::info(fmt::format("Speed so far: {} tokens/s, {} sequences/s; {}{}", format_count(tokens / seconds),
                        format_count(tokens / static_cast<double>(setup_.config.sequence_length()) / seconds),
                        report::efficiency_text(*efficiency),
                        efficiency->share() < kLow ? "; gpt-bench profile shows what takes the rest" : ""));
}

void Trainer::write_efficiency(std::optional<report::EfficiencyRecord> efficiency) {
  if (!efficiency) return;
  efficiency->step = state_.step, efficiency->at = moment();
  listeners_.efficiency(*efficiency);
}

void Trainer::finish() {
  checkpoints_.save_the_rest();
  const bool is_early = state_.step < plan_.total_steps;
  const std::string why =
      fmt::format("no new best in {} (training.patience)", plural(state_.evaluations_since_best, "evaluation"));
  if (is_early) listeners_.event({state_.step, "ended: " + why});
  write_efficiency(efficiency_.measure(settled_, since_start_.running_seconds()));
  listeners_.end();
  if (is_early) {
    log::info(fmt::format("The run ends after step {} of {}: {}", with_commas(state_.step),
                          with_commas(plan_.total_steps), why));
  }
  if (std::isfinite(state_.best_val_loss))
    log::info(fmt::format("Best val loss {:.4f}: {}", state_.best_val_loss, folder_.best_path()));
  log::success(fmt::format("{} done in {} of training: {}", plural(state_.step, "step"),
                           format_short_duration(stopwatch_.seconds()), folder_.checkpoint_path()));
  const bool best_is_better = state_.evaluations_since_best > 0 && std::isfinite(state_.best_val_loss);
  if (setup_.corpus.tokenizer)
    log::info(fmt::format("Next: gpt-generate --checkpoint {}{}",
                          shell_word(best_is_better ? folder_.best_path() : folder_.path()),
                          setup_.corpus.has_conversations ? " --chat" : ""));
}

}  // namespace gpt::train
