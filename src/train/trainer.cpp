#include "gpt/train/trainer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/map_faults.h"
#include "gpt/core/process.h"
#include "gpt/core/process_memory.h"
#include "gpt/device/find_sensor.h"
#include "gpt/device/memory.h"
#include "gpt/layout/tuning.h"
#include "gpt/run/measured_memory.h"
#include "gpt/run/out_of_memory.h"
#include "gpt/run/teacher.h"

namespace gpt::train {
namespace {

// Steps until allocators, caches and clocks have settled: timed separately.
constexpr int64_t kWarmUpSteps = 10;

// A run of weeks that logs every million steps writes its losses all the same.
constexpr size_t kMostUnwrittenLosses = 1000;

std::unique_ptr<device::DeviceSensor> sensor_of(const run::Setup& setup) {
  device::FoundSensor found = device::find_sensor(setup.device.device);
  if (!found.sensor && setup.mesh.all->is_first())
    log::info("How busy the GPU is, its power and its temperature are not shown: " + found.reason);
  return std::move(found.sensor);
}

}  // namespace

Trainer::Trainer(run::Run& run, const run::Folder& folder, report::Listeners& listeners, bool is_saved,
                 std::vector<checkpoint::Decision> decisions, MemoryWatch::Senses senses, control::Inbox* inbox)
    : run_(run),
      folder_(folder),
      listeners_(listeners),
      tasks_(setup_.config, setup_.corpus),
      forecast_(plan_, run::evaluation_steps(training(), setup_.config.sequence_length(),
                                             run::evaluation_tokens(training(), setup_.config.sequence_length(),
                                                                    setup_.corpus.validation.size(),
                                                                    run::most_eval_sequences(training(),
                                                                                             state_.course.planned)))),
      checkpoints_(state_, folder, {plan_, cadence()}, listeners, forecast_, is_saved),
      decisions_(state_, folder, std::move(decisions), setup_.mesh.all, run.schedule_steps()),
      memory_watch_(training().execution.memory_check, std::move(senses)),
      device_watch_(sensor_of(setup_), [this] { return state_.loader.seconds_waited(); }),
      inbox_(inbox),
      spent_before_(state_.seconds_spent),
      first_step_(state_.step) {
  if (run_.keeps_time() && setup_.mesh.all->is_first())
    time_.emplace(training().schedule.max_time.seconds, seconds_spent());
  logged_.step = epoch_.step = state_.step;
  const auto most = run::most_eval_sequences(training(), state_.course.planned);
  if (most && *most < run::automatic_eval_sequences(setup_.config.sequence_length()))
    log::info(
        fmt::format("Validation takes at most {}, because more would take more than a hundredth of training.max_time",
                    plural(*most, "sequence")));
  if (!tasks_.empty()) log::info(fmt::format("Tasks evaluated with each validation: {}", tasks_.describe()));
  if (plan_.eval_every > 0 && !run_.evaluator().empty() && !run_.evaluator().knows_bytes()) {
    log::info(
        "Validation reports no bits per byte: the data has neither a tokenizer nor metadata with the byte count of its text");
  }
  if (plan_.sample_every > 0 && !setup_.corpus.tokenizer)
    log::info("No samples are written: the data has no tokenizer; name the one that made its ids with data.tokenizer");
}

ExitCode Trainer::run() {
  try {
    do train();
    while (!is_done() && interruption_.stop_signal == 0 && outlasts_shortage());
    if (is_done() || interruption_.stop_signal != 0) return conclude();
  } catch (const std::exception& error) {
    if (process::is_out_of_memory(error)) leave_out_of_memory({.requested = run::requested_bytes(error.what())});
    checkpoints_.leave_background();
    if (const auto* known = dynamic_cast<const Error*>(&error); known && known->code() == ExitCode::peer)
      leave_without_peer(error.what());
    if (folder_.is_in_place())
      listeners_.stop({state_.step, fmt::format("by an error ({})", first_line(error.what()))});
    throw;
  }
  state_.prepare_capture();  // all processes come here
  leave_out_of_memory({.is_taken_by_others = true});
}

void Trainer::train() {
  process::announce_stops("Stopping: finishing this micro-step, then saving");
  // An evaluation that a signal cut short is repeated.
  const bool evaluation_due =
      run::due(plan_.eval_every, state_.step) || (plan_.eval_every > 0 && state_.step == plan_.total_steps);
  if (state_.step > 0 && evaluation_due && state_.evaluated_step != state_.step) evaluate();
  if (run_.begins_decay()) checkpoints_.save_stable();  // which a signal may have prevented
  checkpoints_.begin_writing();
  stopwatch_.start();
  while (!is_done() && !must_stop()) {
    take_decisions();
    follow_requests();
    if (is_interrupted()) break;
    if (is_done()) {  // no time is left for another update
      stopwatch_.stop();
      if (plan_.eval_every > 0 && state_.evaluated_step != state_.step) evaluate();
      stopwatch_.start();
      break;
    }
    bar_.show(progress());
    tell_activity(kTraining);
    if (!update()) break;
    if (plan_.ends_epoch(state_.step)) close_epoch();
    stopwatch_.stop();
    periodic_work();
    stopwatch_.start();
  }
  stopwatch_.stop();
  bar_.close();
  divergence_.report_skips();
  write_losses();
}

ExitCode Trainer::conclude() {
  activity_ = "checkpoint";
  tell_activity("saving");
  if (training().schedule.has_time()) state_.seconds_spent = seconds_spent();
  state_.prepare_capture();
  if (process::stop_signal() != 0) return stop();
  finish();
  return ExitCode::ok;
}

bool Trainer::update() {
  const Stopwatch watch;
  if (time_) time_->begins(seconds_spent());
  learning_rate_ = run_.learning_rate();
  activity_ = kUpdate;
  run_.step().measure_norms(is_logged(state_.step + 1));
  std::optional<int64_t> tokens;
  try {
    const double waited = setup_.mesh.seconds_waited();
    tokens = run_.update([this] { return must_stop(); });
    waited_ += setup_.mesh.seconds_waited() - waited;
  } catch (const std::exception&) {
    const std::string file = map_faults::changed_file();
    if (file.empty()) throw;
    leave_changed_data(file);
  }
  if (!tokens) return false;
  checkpoints_.state_changed();
  checkpoints_.notice_written();
  process_memory::sample();
  tokens_ += *tokens;
  if (const auto why = divergence_.after_update()) leave_diverged(*why);
  if (!is_logged(state_.step)) keep_loss();
  const bool warmed_up = state_.step - first_step_ == kWarmUpSteps;
  if (is_logged(state_.step) || warmed_up) close_log_interval();
  forecast_.took(run::Forecast::kStep, watch.running_seconds());
  keep_to_time();
  return true;
}

bool Trainer::must_stop() {
  interruption_ = interruptions_.agree({.stop_signal = process::stop_signal(),
                                        .lacks_memory = memory_watch_.is_running_out(),
                                        .saves = process::take_save_request(),
                                        .is_time = checkpoints_.take_time(),
                                        .is_asked = inbox_ && inbox_->has_requests(),
                                        .total_steps = std::exchange(wanted_steps_, 0)});
  if (interruption_.stop_signal != 0) process::request_stop(static_cast<int>(interruption_.stop_signal));
  saves_ = saves_ || interruption_.saves;
  is_asked_ = is_asked_ || interruption_.is_asked;
  if (interruption_.is_time) checkpoints_.agree_on_time();
  if (interruption_.total_steps > 0) agreed_steps_ = interruption_.total_steps;
  return is_interrupted();
}

void Trainer::release_memory() const {
  if (training().allocator.release_memory) device::release_unused_memory(device());
}

// Every log_interval steps, the last one, and on the way to the first interval 1, 2, 5, 10, 20, 50, ...: a run that works
// shows it at once.
bool Trainer::is_logged(int64_t step) const {
  if (run::due(cadence().log_interval, step) || step == plan_.total_steps) return true;
  if (step > cadence().log_interval) return false;
  int64_t digit = step;
  while (digit % 10 == 0) digit /= 10;
  return digit == 1 || digit == 2 || digit == 5;
}

void Trainer::close_log_interval() {
  report::StepRecord m;
  if (is_logged(state_.step)) m.devices = devices();  // while the GPU still computes the update
  m.loss = run_.step().loss().item<double>();  // sync: the log line reads the device, and closes the interval's clock
  const Mark now{state_.step, tokens_, stopwatch_.running_seconds(), waited_};
  const double seconds = now.seconds - logged_.seconds;
  const bool warm_up = logged_.step < first_step_ + kWarmUpSteps;
  const int64_t steps = now.step - logged_.step, tokens = now.tokens - logged_.tokens;
  const report::TimingRecord interval{.steps = steps, .tokens = tokens, .seconds = seconds, .is_warm_up = warm_up};
  listeners_.timing(interval);
  if (!warm_up) settled_ += interval;
  if (is_logged(state_.step)) {
    checkpoints_.require_folder();
    m.step = state_.step;
    m.learning_rate = learning_rate_;
    m.grad_norm = run_.step().grad_norm().item<double>();
    m.at = moment();
    m.elapsed_seconds = since_start_.running_seconds();
    m.remaining_seconds = forecast_.remaining_seconds(state_.step);
    m.step_ms = 1e3 * seconds / static_cast<double>(steps);
    m.tokens_per_second = static_cast<double>(tokens) / seconds;
    m.sequences_per_second = m.tokens_per_second / static_cast<double>(setup_.config.sequence_length());
    if (const auto peak = setup_.device.peak_flops(setup_.precision.dtype)) {
      const auto devices = static_cast<double>(setup_.mesh.all->size());
      const ModelConfig& model = setup_.config.model;
      const double flops =
          layout::flops_per_token(in_training(model, training()), layout::parameter_table(model, training().tuning)) +
          run::teacher_flops_per_token(model, training());
      m.mfu = m.tokens_per_second * flops / (*peak * devices);
    }
    m.peak_memory_mb = device::peak_allocated_bytes(device()) / 1e6;
    m.memory = run::measured_memory(state_, run_.step());
    m.norms = norms();
    m.wait_ms = waits((now.waited - logged_.waited) / static_cast<double>(steps));
    write_losses();
    listeners_.step(m);
    last_step_ = m;
    divergence_.report_skips();
  }
  logged_ = now;
}

std::vector<report::DeviceUse> Trainer::devices() {
  const std::optional<report::DeviceUse> own = device_watch_.read();
  const int64_t processes = setup_.mesh.all->size();
  if (processes == 1) return own ? std::vector{*own} : std::vector<report::DeviceUse>();
  const at::Tensor all = at::zeros({processes, std::ssize(report::kDeviceFields)}, at::kDouble);
  auto values = all.accessor<double, 2>();
  auto here = values[setup_.mesh.all->rank()];
  for (int64_t i = 0; i < std::ssize(report::kDeviceFields); ++i)  // NaN: nothing
    here[i] = own ? ((*own).*report::kDeviceFields[static_cast<size_t>(i)].value).value_or(NAN) : NAN;
  try {
    setup_.mesh.all->sum(all);
  } catch (const Error& error) {
    if (error.code() != ExitCode::peer) throw;
    return {};  // as of waits()
  }
  std::vector<report::DeviceUse> of_processes(static_cast<size_t>(processes));
  for (int64_t process = 0; process < processes; ++process)
    for (int64_t i = 0; i < std::ssize(report::kDeviceFields); ++i)
      if (const double value = values[process][i]; !std::isnan(value))
        of_processes[static_cast<size_t>(process)].*report::kDeviceFields[static_cast<size_t>(i)].value = value;
  const bool is_read =
      std::ranges::all_of(of_processes, [](const report::DeviceUse& use) { return use != report::DeviceUse(); });
  return is_read ? report::devices_of(of_processes, setup_.local_processes) : std::vector<report::DeviceUse>();
}

std::optional<report::LayerNorms> Trainer::norms() const {
  try {
    return run_.step().norms();
  } catch (const Error& error) {
    if (error.code() != ExitCode::peer) throw;
    return std::nullopt;  // as of waits()
  }
}

// What all processes wait, in ms, from the seconds of this one: the slowest one waits least.
std::vector<double> Trainer::waits(double own) const {
  const int64_t processes = setup_.mesh.all->size();
  if (processes == 1 || device().is_cuda()) return {};  // a GPU's host also waits for its own computing
  const at::Tensor all = at::zeros({processes}, at::kDouble);
  all[setup_.mesh.all->rank()] = 1e3 * own;
  try {
    setup_.mesh.all->sum(all);
  } catch (const Error& error) {
    if (error.code() != ExitCode::peer) throw;
    return {};  // this step has its line all the same; the next one finds out who is lost
  }
  const auto* const first = all.const_data_ptr<double>();
  return {first, first + processes};
}

void Trainer::close_epoch() {
  if (const std::string file = map_faults::changed_file(); !file.empty()) leave_changed_data(file);
  if (!setup_.config.data.stages.empty()) return;  // they see fractions of their texts, or one of them several times
  if (plan_.steps_per_epoch < cadence().log_interval) return;  // a tiny text: a line an epoch would drown the rest
  const Mark now{state_.step, tokens_, stopwatch_.running_seconds()};
  const double mean =  // sync: once an epoch
      state_.counts().loss_sum.item<double>() / state_.counts().token_sum.item<double>();
  const double seconds = now.seconds - epoch_.seconds;
  const double samples =
      static_cast<double>(now.tokens - epoch_.tokens) / static_cast<double>(setup_.config.sequence_length());
  const int64_t epoch = state_.step / plan_.steps_per_epoch;
  const bool is_whole = epoch_.step <= (epoch - 1) * plan_.steps_per_epoch;  // the run did not resume within it
  listeners_.epoch({.epoch = epoch,
                    .since_step = is_whole ? 0 : epoch_.step,
                    .mean_loss = mean,
                    .seconds = seconds,
                    .sequences_per_second = samples / seconds});
  epoch_ = now;
  for (const at::Tensor* sum : {&state_.counts().loss_sum, &state_.counts().token_sum}) sum->zero_();
}

Progress Trainer::progress() const {
  Progress progress{.steps_done = state_.step,
                    .total_steps = plan_.total_steps,
                    .step_seconds = forecast_.step_seconds(),
                    .remaining_seconds = forecast_.remaining_seconds(state_.step),
                    .val_loss = last_val_loss_};
  if (last_step_) progress.loss = last_step_->loss, progress.tokens_per_second = last_step_->tokens_per_second;
  return progress;
}

void Trainer::show_activity(const std::string& what, const std::string& how_far) {
  bar_.show_activity(progress(), how_far.empty() ? what : what + " " + how_far);
  tell_activity(what, how_far);
}

void Trainer::tell_activity(const std::string& what, const std::string& how_far) {
  what == kTraining ? device_watch_.trains() : device_watch_.pauses();
  listeners_.activity({.step = state_.step,
                       .what = what,
                       .how_far = how_far,
                       .remaining_seconds = forecast_.remaining_seconds(state_.step)});
}

void Trainer::periodic_work() {
  const bool last = state_.step == plan_.total_steps;
  tell_speed();
  if (run::due(plan_.eval_every, state_.step) || (last && plan_.eval_every > 0)) evaluate();
  if (run_.begins_decay()) checkpoints_.save_stable();
  if (checkpoints_.is_due()) {
    write_losses();  // a run that resumes from there has them
    show_activity("saving");
    checkpoints_.save_due();
  }
  checkpoints_.begin_writing();
  if (run::due(plan_.sample_every, state_.step) && !is_interrupted()) (void)write_sample();
  if (setup_.mesh.all->size() == 1) saves_ = process::take_save_request() || saves_;
  save_if_asked();
}

bool Trainer::is_done() const {
  const int64_t patience = cadence().patience;
  return state_.step == plan_.total_steps || (patience > 0 && state_.evaluations_since_best >= patience);
}

// They stay on the device, so that a GPU does not wait for the host after each step.
void Trainer::keep_loss() {
  unwritten_losses_.emplace_back(report::LossRecord{.step = state_.step,
                                                    .learning_rate = learning_rate_,
                                                    .at = moment()},
                                 at::stack({run_.step().loss(), run_.step().grad_norm()}));
  if (unwritten_losses_.size() >= kMostUnwrittenLosses) write_losses();
}

void Trainer::write_losses() {
  if (unwritten_losses_.empty()) return;
  std::vector<at::Tensor> tensors;
  std::vector<report::LossRecord> records;
  for (const auto& [record, loss] : unwritten_losses_) tensors.push_back(loss), records.push_back(record);
  unwritten_losses_.clear();
  const at::Tensor values =
      at::stack(tensors).to(at::kDouble).cpu();  // sync: where a log line, an evaluation or a checkpoint is one
  const auto* value = values.const_data_ptr<double>();
  for (report::LossRecord& record : records) record.loss = *value++, record.grad_norm = *value++;
  listeners_.losses(records);
}

}  // namespace gpt::train
