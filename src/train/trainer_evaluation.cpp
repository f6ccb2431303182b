// What a run does besides updates to see how well it does: validations, tasks and samples.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/map_faults.h"
#include "gpt/core/process.h"
#include "gpt/core/process_memory.h"
#include "gpt/data/sample_start.h"
#include "gpt/device/memory.h"
#include "gpt/generate/generator.h"
#include "gpt/run/weights_to_evaluate.h"
#include "gpt/train/trainer.h"

namespace gpt::train {
namespace {

// What a sample continues, and how. Of conversations it is the answer to the first question that the model does not learn from.
std::pair<std::string, generate::SamplingConfig> sample_of(const data::Corpus& corpus, const CadenceConfig& cadence) {
  generate::SamplingConfig sampling;
  sampling.max_new_tokens = cadence.sample_tokens;
  const tokenizer::TextFormat format = tokenizer::text_format_of(corpus.text_format, *corpus.tokenizer);
  sampling.start = {corpus.sample_start, format.prefix}, sampling.ends = format.ends;
  if (!cadence.sample_prompt.empty() || !corpus.has_conversations) return {cadence.sample_prompt, sampling};
  const data::Opening question =
      data::opening(*corpus.tokenizer, corpus.validation.size() > 0 ? corpus.validation : corpus.train);
  if (question.end) sampling.ends.push_back(*question.end);
  return {question.text, sampling};
}

}  // namespace

void Trainer::evaluate() {
  const Stopwatch all;
  const auto tasks = evaluate_tasks();
  if (!tasks) return;
  if (run_.evaluator().empty()) {
    if (tasks_.empty()) return;
    state_.evaluated_step = state_.step;
    checkpoints_.state_changed();
    return tell_tasks(*tasks);
  }
  const Stopwatch watch;
  const run::Evaluation evaluation = measure(run_.evaluator());
  if (std::isnan(evaluation.loss) && is_interrupted()) return;  // repeated when the run resumes
  const double seconds = watch.running_seconds();
  forecast_.took(run::Forecast::kEvaluation, all.running_seconds());
  state_.evaluated_step = state_.step;
  if (state_.eval_sequences && !cadence().eval_batches && std::isfinite(evaluation.loss))
    state_.eval_sequences = evaluation.sequences;
  checkpoints_.state_changed();
  checkpoints_.require_folder();
  checkpoints_.settle();  // what the best loss is may depend on it
  agree_on_best();
  const bool best = evaluation.loss < state_.best_val_loss && state_.skipped_in_a_row() == 0;  // sync: reads the device
  state_.evaluations_since_best = best ? 0 : state_.evaluations_since_best + 1;
  follow_plateau(evaluation.loss);
  write_losses();
  listeners_.evaluation({.step = state_.step,
                         .loss = evaluation.loss,
                         .bits_per_byte = evaluation.bits_per_byte,
                         .is_best = best,
                         .seconds = seconds,
                         .standard_error = evaluation.standard_error,
                         .at = moment()});
  tell_tasks(*tasks);
  last_val_loss_ = evaluation.loss;
  if (best) checkpoints_.save_best(evaluation.loss);
  warn_of_rise(evaluation);
}

run::Evaluation Trainer::measure(run::Evaluator& evaluator) {
  activity_ = "validation";
  release_memory();
  run::Evaluation evaluation;
  try {
    const run::WeightsToEvaluate weights(state_, cadence());
    evaluation = evaluator.run(state_.model, [this](double share) {
      show_activity("validating", fmt::format("{:.0f}%", 100 * share));
      process_memory::sample();
      return must_stop();
    });
  } catch (const std::exception&) {  // LibTorch's too, where what was read are no token ids
    const std::string file = map_faults::changed_file();
    if (file.empty()) throw;
    leave_changed_data(file);
  }
  release_memory();
  return evaluation;
}

std::optional<std::vector<report::TaskRecord>> Trainer::evaluate_tasks() {
  std::vector<report::TaskRecord> records;
  if (tasks_.empty()) return records;
  activity_ = "evaluation of tasks";
  release_memory();
  try {
    const auto stop = [this](const std::string& task) {
      show_activity("evaluating tasks:", task);
      process_memory::sample();
      return is_any(process::stop_signal() != 0 || memory_watch_.is_running_out());
    };
    const run::WeightsToEvaluate weights(state_, cadence());
    records = tasks_.run(state_.model, setup_.precision.autocast_type(), *setup_.mesh.data, stop);
    const bool is_stopped = records.empty();
    release_memory();
    if (must_stop() || is_stopped) return std::nullopt;
    for (report::TaskRecord& record : records) record.step = state_.step, record.at = moment();
  } catch (const Error& error) {
    if (error.code() != ExitCode::numerics) throw;
    log::warn(fmt::format("step {}: the tasks are not evaluated: {}", state_.step, error.what()));
  }
  return records;
}

void Trainer::tell_tasks(const std::vector<report::TaskRecord>& tasks) {
  if (!tasks.empty()) write_losses();
  for (const report::TaskRecord& task : tasks) listeners_.task(task);
}

// All processes take note of the first one's loss: another machine may have rounded its own otherwise.
void Trainer::follow_plateau(double loss) {
  if (training().schedule.lr_schedule != LrSchedule::plateau) return;
  if (!optim::take_note(state_.plateau, training().schedule, setup_.mesh.all->first_says(loss))) return;
  const std::string what =
      fmt::format("the learning rate is {:.3g} from now on, because the validation loss has stopped improving",
                  run_.learning_rate());
  log::info(fmt::format("step {}: {}", with_commas(state_.step), what));
  listeners_.event({state_.step, what});
}

// Only the first process knows whether the file of an earlier best could be written.
void Trainer::agree_on_best() { state_.best_val_loss = setup_.mesh.all->first_says(state_.best_val_loss); }

// Once for each rise beyond what the sample of the split explains.
void Trainer::warn_of_rise(const run::Evaluation& evaluation) {
  constexpr double kClear = 0.01;
  const double rise = evaluation.loss - state_.best_val_loss;
  if (rise <= 0) is_rise_announced_ = false;
  if (is_rise_announced_ ||
      !(rise > std::max(kClear * state_.best_val_loss, 2 * evaluation.standard_error.value_or(0))))
    return;
  is_rise_announced_ = true;
  log::warn(fmt::format(
      "step {}: the validation loss is {:.1f} % above its best ({:.4f}, {} ago): the model may be memorizing the text; more "
      "text, fewer steps or a higher model.dropout would help{}",
      state_.step, 100 * rise / state_.best_val_loss, state_.best_val_loss,
      plural(state_.evaluations_since_best, "evaluation"),
      cadence().patience > 0 ? "" : ", and training.patience ends a run where it gets no better"));
}

// Whether it is so in one of the processes that divide the model, which must go on alike.
bool Trainer::is_any(bool here) const { return setup_.mesh.is_any_of_model(here); }

bool Trainer::write_sample() {
  std::optional<report::SampleRecord> sample;
  {
    const run::WeightsToEvaluate weights(state_, cadence());
    // All that have a part of the first process's model take part in its sample.
    model::work_apart(state_.model, [&] {
      if (setup_.mesh.data->is_first()) sample = this->sample();
    });
  }
  if (sample) checkpoints_.require_folder(/*is_alone=*/true), listeners_.sample(*sample);
  return sample.has_value();
}

std::optional<report::SampleRecord> Trainer::sample() {
  if (!setup_.corpus.tokenizer) return std::nullopt;
  activity_ = "sample";
  release_memory();
  const Stopwatch watch;
  show_activity("writing a sample");
  const auto [prompt, sampling] = sample_of(setup_.corpus, cadence());
  const auto result =
      generate::generate(state_.model, *setup_.corpus.tokenizer, prompt, sampling,
                         generate::generation_type(setup_.precision, device()), [this](std::string_view) {
                           return !is_any(process::stop_signal() != 0 || memory_watch_.is_running_out());
                         });
  release_memory();
  forecast_.took(run::Forecast::kSample, watch.running_seconds());
  return report::SampleRecord{.step = state_.step, .text = prompt + result.text};
}

}  // namespace gpt::train
