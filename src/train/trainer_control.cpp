// What a run is told on its way (gpt-board tell). The first process hears it, all of them carry it out between the same two updates, and what
// changes numbers becomes one of the run's decisions before it has an effect.
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/core/running_clock.h"
#include "gpt/train/trainer.h"

namespace gpt::train {
namespace {

constexpr int64_t kMostAtATime = 8;

std::string words_of(const control::Request& request) {
  return request.value == 0 ? name_of(request.verb) : fmt::format("{} {}", name_of(request.verb), request.value);
}

}  // namespace

// Not before the first update: until then there is no state to save, without which a killed run would begin anew.
void Trainer::follow_requests() {
  if (state_.step == 0 || (!is_asked_ && !is_paused_)) return;
  stopwatch_.stop();
  carry_out(next_requests(std::chrono::milliseconds(0)));
  wait_while_paused();
  stopwatch_.start();
}

// What the first process has heard, waiting for so long where that is nothing.
std::vector<control::Inbox::Asked> Trainer::next_requests(std::chrono::milliseconds most) {
  is_asked_ = false;
  std::vector<control::Inbox::Asked> requests;
  if (inbox_ && inbox_->wait(most)) requests = inbox_->take(kMostAtATime);
  const at::Tensor said = at::zeros({1 + 2 * kMostAtATime}, at::kDouble);
  auto* const numbers = said.data_ptr<double>();
  numbers[0] = static_cast<double>(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    numbers[1 + 2 * i] = static_cast<double>(requests[i].request.verb);
    numbers[2 + 2 * i] = requests[i].request.value;
  }
  setup_.mesh.all->broadcast(said);
  requests.resize(static_cast<size_t>(numbers[0]));
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].request = {static_cast<control::Verb>(numbers[1 + 2 * i]), numbers[2 + 2 * i]};
  return requests;
}

void Trainer::carry_out(const std::vector<control::Inbox::Asked>& requests) {
  for (const auto& [id, request] : requests) {
    control::Answer answer = carried_out(request);
    log::info(fmt::format("step {}: told '{}': {}", with_commas(state_.step), words_of(request), answer.said));
    answer.said = fmt::format("step {}: {}", with_commas(state_.step), answer.said);
    if (inbox_) inbox_->answer(id, answer);
  }
}

control::Answer Trainer::carried_out(const control::Request& request) {
  switch (request.verb) {
    case control::Verb::pause: return pause(true);
    case control::Verb::go_on: return pause(false);
    case control::Verb::save: return save_as_told();
    case control::Verb::validate: return validate_as_told();
    case control::Verb::sample: return sample_as_told();
    case control::Verb::rate: return change_rate(request.value);
    case control::Verb::steps:
    case control::Verb::longer:
    case control::Verb::shorter: return change_length(request);
    case control::Verb::stop: break;  // the inbox does that at once
  }
  return {};
}

control::Answer Trainer::pause(bool is_to_pause) {
  if (is_to_pause == is_paused_) return {true, is_paused_ ? "the run is paused already" : "the run is not paused"};
  is_paused_ = is_to_pause;
  listeners_.event({state_.step, is_paused_ ? "paused" : "went on after a pause"});
  is_paused_ ? show_activity("paused") : tell_activity(kTraining);
  if (!is_paused_) return {true, "the run goes on"};
  return {true, fmt::format("the run is paused: gpt-board tell {} continue", folder_.path())};
}

// The processes meet again and again, so that none takes another one for lost.
void Trainer::wait_while_paused() {
  constexpr std::chrono::milliseconds kBetweenMeetings(200);
  std::optional<RunningClock::Pause> clock_stands;
  while (is_paused_ && !must_stop()) {
    if (saves_) clock_stands.reset(), save_if_asked();
    if (!clock_stands) clock_stands.emplace();
    show_activity("paused");
    const std::vector<control::Inbox::Asked> requests = next_requests(kBetweenMeetings);
    if (requests.empty()) continue;
    clock_stands.reset();
    carry_out(requests);
  }
}

bool Trainer::save_now() {
  write_losses();
  state_.prepare_capture();
  checkpoints_.save_last(/*must=*/false);
  state_.discard();
  return checkpoints_.has_saved() && checkpoints_.saved_step() == state_.step;
}

void Trainer::save_if_asked() {
  if (!std::exchange(saves_, false)) return;
  if (save_now()) log::info(fmt::format("SIGUSR1 at step {}: saved {}", state_.step, folder_.checkpoint_path()));
}

// What was decided would be set aside with the rest of a run that begins anew, where it is killed before its first checkpoint.
void Trainer::keep_decided() {
  checkpoints_.state_changed();
  if (setup_.mesh.all->first_says(!checkpoints_.has_saved())) (void)save_now();
}

control::Answer Trainer::save_as_told() {
  show_activity("saving");
  if (save_now()) return {true, fmt::format("saved {}", folder_.checkpoint_path())};
  return {false, fmt::format("{} could not be written, as the log says", folder_.checkpoint_path())};
}

// Validates with a copy of the evaluator, because the run's own first validation settles how many sequences one has. The result counts for
// nothing: neither as the best, nor for patience or the plateau of the learning rate, so that the run becomes what it would be without it.
control::Answer Trainer::validate_as_told() {
  if (run_.evaluator().empty()) return {false, "there is no text to validate with"};
  run::Evaluator evaluator = run_.evaluator();
  const run::Evaluation evaluation = measure(evaluator);
  if (std::isnan(evaluation.loss) && is_interrupted()) return {false, "the run ends before it is validated"};
  std::string said = fmt::format("the validation loss is {:.4f}", evaluation.loss);
  if (evaluation.standard_error) said += fmt::format(" ± {:.4f}", *evaluation.standard_error);
  if (evaluation.bits_per_byte) said += fmt::format(", {:.4f} bits per byte", *evaluation.bits_per_byte);
  listeners_.event({state_.step, said});
  return {true, said};
}

control::Answer Trainer::sample_as_told() {
  if (!setup_.corpus.tokenizer) return {false, "no sample can be written: the data has no tokenizer"};
  if (!write_sample()) return {false, "no sample was written"};
  return {true, fmt::format("a sample is in {}", folder_.samples_path())};
}

control::Answer Trainer::change_rate(double factor) {
  checkpoints_.require_folder();
  if (!decisions_.decide(run::kLearningRateFactor, factor))
    return {false, "the learning rate stays as it was, because the decision could not be written, as the log says"};
  keep_decided();
  const std::string what = fmt::format("the learning rate is {:.3g} times the schedule's from step {} on, {:.3g} there",
                                       state_.learning_rate_factor, with_commas(state_.step + 1), run_.learning_rate());
  listeners_.event({state_.step, what, moment()});
  return {true, what};
}

control::Answer Trainer::change_length(const control::Request& request) {
  if (const std::string why = run::why_length_is_fixed(setup_.config.training.schedule, setup_.config.data);
      !why.empty())
    return {false, "the run stays as long as it was: " + why};
  const auto number = static_cast<int64_t>(request.value);
  const int64_t before = plan_.total_steps, total = request.verb == control::Verb::longer    ? before + number
                                                    : request.verb == control::Verb::shorter ? before - number
                                                                                             : number;
  if (total == before) return {true, fmt::format("the run ends after step {} already", with_commas(before))};
  if (total <= state_.step)
    return {false, fmt::format("the run cannot end after step {}, because it is at step {}: stop ends it now",
                               with_commas(total), with_commas(state_.step))};
  checkpoints_.require_folder();
  if (!decisions_.decide(run::kSteps, static_cast<double>(total)))
    return {false, "the run stays as long as it was, because the decision could not be written, as the log says"};
  keep_decided();
  follow_length();
  const std::string what = fmt::format("the run ends after step {} instead of {}, and its learning rate with it",
                                       with_commas(plan_.total_steps), with_commas(before));
  listeners_.event({state_.step, what, moment()});
  return {true, what};
}

}  // namespace gpt::train
