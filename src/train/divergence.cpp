#include "gpt/train/divergence.h"

#include <fmt/format.h>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/train/reporting.h"

namespace gpt::train {

Divergence::Divergence(run::Run& run, CheckpointKeeper& checkpoints, run::Decisions& decisions,
                       report::Listeners& listeners)
    : run_(run),
      checkpoints_(checkpoints),
      decisions_(decisions),
      listeners_(listeners),
      reported_skips_(state_.skipped_steps()),
      reported_spikes_(state_.spikes()) {}

std::optional<std::string> Divergence::after_update() {
  const bool stops = cadence_.divergence.reaction == OnDivergence::stop;
  if (!stops && !cadence_.divergence.goes_back()) return std::nullopt;
  const std::optional<ops::Spike> spike = run_.step().spike();  // sync: the next update must not follow a spike
  if (!spike) return std::nullopt;
  return stops ? describe(*spike) : go_back(*spike);
}

// Only the first of several spikes in a row, as bad data may bring, leads back: there is nothing that the others could undo.
std::optional<std::string> Divergence::go_back(const ops::Spike& spike) {
  const DivergenceConfig& config = cadence_.divergence;
  const int64_t applied = state_.step - state_.skipped_steps();
  if (applied == applied_when_back_) return std::nullopt;
  const std::optional<checkpoint::Checkpoint> checkpoint = checkpoints_.before_spike(*run_.setup().mesh.all);
  if (!checkpoint) return describe(spike) + ", and there is no checkpoint to go back to";
  const int64_t applied_then = checkpoint->step - checkpoint->skipped_steps;
  if (applied == applied_then) {
    applied_when_back_ = applied_then;
    return std::nullopt;
  }
  if (state_.rollbacks == config.max_rollbacks)
    return fmt::format("{}, after {} (training.max_rollbacks)", describe(spike), plural(state_.rollbacks, "rollback"));
  if (!lower_rate()) {
    log::warn(
        fmt::format("step {}: {}: not going back to {}, because the lower learning rate cannot be noted in the "
                    "folder; the update is skipped, and the next spike tries again",
                    state_.step, describe(spike), checkpoint::rollback_checkpoint(checkpoint->step)));
    return std::nullopt;
  }
  applied_when_back_ = applied_then;
  state_.go_back(*checkpoint);
  ++state_.rollbacks;
  state_.proven_step = checkpoint->step;
  state_.waiting_step.reset();
  reported_skips_ = state_.skipped_steps(), reported_spikes_ = state_.spikes();
  const std::string what = fmt::format("went back to the weights of step {}", checkpoint->step);
  log::warn(fmt::format("step {}: {}: {} (rollback {} of at most {}); {} since then count as skipped{}", state_.step,
                        describe(spike), what, state_.rollbacks, config.max_rollbacks,
                        plural(state_.step - checkpoint->step, "update"),
                        state_.learning_rate_factor == 1
                            ? ""
                            : fmt::format(", and the learning rate is {:.3g} times the schedule's",
                                          state_.learning_rate_factor)));
  listeners_.event({state_.step, fmt::format("{}: {}", what, describe(spike)), moment_of(state_)});
  return std::nullopt;
}

// False: it could not be decided.
bool Divergence::lower_rate() {
  const double factor = cadence_.divergence.rollback_lr_factor;
  if (factor == 1) return true;
  checkpoints_.require_folder();
  return decisions_.decide(run::kLearningRateFactor, factor * state_.learning_rate_factor);
}

std::string Divergence::describe(const ops::Spike& spike) const {
  return fmt::format("the {} is {:.4g}, and the median of the {} accepted updates before it {:.4g}",
                     spike.is_in_loss ? "loss" : "gradient norm", spike.value, cadence_.divergence.spike_window,
                     spike.median);
}

void Divergence::report(int64_t updates, const std::string& as, const std::string& why) {
  if (updates == 0) return;
  const std::string news = fmt::format("{} skipped{}", plural(updates, "update"), as);
  log::warn(fmt::format("step {}: {} because {} ({} in all)", state_.step, news, why, reported_skips_));
  listeners_.event({state_.step, news});
}

void Divergence::report_skips() {
  const int64_t skipped = state_.skipped_steps() - reported_skips_, spikes = state_.spikes() - reported_spikes_;
  if (skipped == 0) return;
  reported_skips_ += skipped, reported_spikes_ += spikes;
  report(skipped - spikes, "", "the loss or gradients were not finite");
  report(spikes, " as a spike", "the loss or the gradient norm jumped");
  const int64_t in_a_row = state_.skipped_in_a_row();
  if (in_a_row < cadence_.max_skipped_steps) return;
  checkpoints_.settle();
  const std::string kept = checkpoints_.has_saved()
                               ? fmt::format("the checkpoint of step {} is kept", checkpoints_.saved_step())
                               : "nothing was saved before";
  const char* const fault =
      spikes > 0 ? "that was not finite or far above the last ones: look at the data there, raise "
                   "training.spike_threshold, lower training.learning_rate, or set training.on_divergence: off"
                 : "that was not finite: lower training.learning_rate, lengthen training.warmup_steps, or set "
                   "training.dtype: float32";
  throw Error(ExitCode::numerics, fmt::format("step {}: {} updates in a row had a loss or gradient {} ({})",
                                              state_.step, in_a_row, fault, kept));
}

}  // namespace gpt::train
