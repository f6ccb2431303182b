#include "gpt/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "gpt/config/rules.h"
#include "gpt/core/error.h"
#include "gpt/core/hash.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/model/compile.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/optim/averaged_optimizer.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/optim/newton_schulz.h"
#include "gpt/parallel/equal_values.h"
#include "gpt/run/decisions.h"
#include "gpt/run/longer_run.h"

namespace gpt::run {
namespace {

// A run that has had another time or limit goes on as far along its schedule as it is. Where it ends then is one of its
// decisions, by which a start after a kill knows that those behind it are of the same length (run/find_length.h).
void begin_course(State& state, const TrainingConfig& training, const Beginning& begins) {
  const ScheduleConfig& schedule = training.schedule;
  if (!schedule.has_time()) state.seconds_spent = 0;
  bool is_decided = false;
  if (begins.start) {
    const checkpoint::Checkpoint& checkpoint = begins.start->checkpoint;
    state.course =
        course_with(checkpoint, schedule, plan_run(training, state.loader.batches_per_epoch()).steps_per_epoch);
    is_decided = schedule.has_time() && state.course.planned > 0 && !has_same_length(checkpoint, schedule);
  }
  if (state.course.planned == 0 && begins.total_steps) {
    state.course.end_at(*begins.total_steps, state.step);
    is_decided = true;
  }
  if (!is_decided) return;
  std::erase_if(state.decisions, [&state](const checkpoint::Decision& decision) {
    return decision.step == state.step && decision.what == kTotalSteps;
  });
  state.decisions.push_back({state.step, kTotalSteps, static_cast<double>(state.course.total)});
}

parallel::Division division_of(const Setup& setup) {
  return {setup.mesh, setup.config.distributed, setup.config.training.optimizer};
}

TrainStep make_step(State& state, const Setup& setup, const TrainingConfig& training, Recorder recorder,
                    const Teacher* teacher) {
  return {{state.model, *state.optimizer, state.scaler, state.counts(), state.watch()},
          {setup.precision, state.dropout_seed(), teacher},
          training,
          std::move(recorder),
          state.division()};
}

// Asked in all processes at once.
bool is_equal_in_all(distributed::Communicator& ranks, const std::string& text) {
  const auto hash = static_cast<int64_t>(hash64(text) >> 1);
  const int64_t first = ranks.first_says(hash);
  return !ranks.is_any(first != hash);
}

// Processes that compute the whole update each must come to the same bits.
void require_equal_processes(const Setup& setup) {
  if (!setup.config.training.optimizer.has_muon() || !division_of(setup).repeats_updates()) return;
  std::string own = fmt::format("{} {}", setup.device.name, device::name_of(optim::newton_schulz_type(setup.device)));
  for (const auto& [what, value] : run_environment(at::kCPU)) own += fmt::format("\n{}: {}", what, value);
  if (is_equal_in_all(*setup.mesh.data, own)) return;
  config::Facts facts = facts_of(setup);
  facts.are_alike = false;
  config::require_agreement(setup.config, facts);
}

}  // namespace

std::shared_ptr<Teacher> teacher_of(const Setup& setup) {
  if (setup.teacher || setup.config.training.distillation.from.empty()) return setup.teacher;
  return std::make_shared<Teacher>(setup);
}

Run::Run(const Setup& setup, Beginning begins, const MakeRecorder& make_recorder)
    : setup_(setup),
      teacher_(teacher_of(setup)),
      state_(setup.config, setup.corpus, setup.device.device, setup.precision, begins.take_tensors(),
             division_of(setup)),
      schedule_(setup.config.training.schedule),
      keeps_time_(schedule_.has_time() && begins.keeps_time) {
  const TrainingConfig& training = setup.config.training;
  begin_course(state_, training, begins);
  const optim::Course& course = state_.course;
  plan_ = plan_run(training, state_.loader.batches_per_epoch(),
                   course.planned > 0 ? std::optional(course.planned) : std::nullopt);
  if (schedule_.lr_schedule == LrSchedule::wsd && !schedule_.warmup_steps) schedule_.warmup_steps = state_.warmup_steps;
  if (schedule_.lr_schedule == LrSchedule::wsd || (course.planned > 0 && schedule_.has_time()))
    schedule_.warmup_steps = gpt::optim::warmup_steps(schedule_, plan_.total_steps);
  if (course.planned > 0 && schedule_.has_time())  // nobody knew how long it would be
    schedule_.warmup_steps = std::min(*schedule_.warmup_steps, course.planned / 2);
  follow_course();
  state_.warmup_steps = schedule_.lr_schedule == LrSchedule::wsd ? schedule_.warmup_steps : std::nullopt;
  state_.teacher = teacher_ ? std::optional(teacher_->hash()) : std::nullopt;
  if (teacher_) {
    if (begins.start) require_same_teacher(*begins.start, setup, teacher_->hash());
    if (setup.mesh.all->size() > 1 && !is_equal_in_all(*setup.mesh.all, teacher_->hash()))
      throw Error(ExitCode::checkpoint,
                  fmt::format("training.distill_from: {} has other weights in another process: give every machine "
                              "the same file",
                              training.distillation.from));
  }
  require_equal_processes(setup);
  parallel::make_equal(state_.model, setup.mesh);
  const bool may_record = !state_.recording_failed && !state_.division().speaks_within_passes();
  step_.emplace(make_step(state_, setup, training,
                          !may_record     ? Recorder()
                          : make_recorder ? make_recorder(state_.model)
                                          : recorder_for(training, setup.config.model, setup.device.device),
                          teacher_.get()));
}

bool Run::check_operators(bool is_told) {
  TrainingConfig training = setup_.config.training;
  const parallel::Division& division = state_.division();
  if (is_told && division.speaks_within_passes() &&
      model::effective_mode(training, state_.model.config(), setup_.device.device).records)
    log::info(fmt::format(
        "With distributed.{} no CUDA graphs are recorded, because processes speak to each other in every micro-batch",
        division.speaks_within_passes_with()));
  if (!training.execution.use_compile) {
    (void)model::compile_model(state_.model, training, setup_.precision, is_told);
    return false;
  }
  const bool works = model::compile_model(state_.model, training, setup_.precision, is_told);
  if (!setup_.mesh.all->is_any(!works)) {             // all processes compute alike
    device::reset_memory_peak(setup_.device.device);  // LibTorch's operators took more than a step does
    return true;
  }
  Config without = setup_.config;
  without.training.execution.use_compile = false;
  without.training.execution.gradient_checkpointing = GradientCheckpointing::none;  // which then only saves less
  const auto refusal = config::find_refusal(without, facts_of(setup_));
  const bool needs_them =
      division.speaks_within_passes() || training.quantized.is_on() || training.execution.swap_activations != 0;
  if (refusal && needs_them)  // all else can do without
    throw Error(ExitCode::config, fmt::format("{}: {}, which failed here or in another process; change this key",
                                              refusal->keys.front(), refusal->why));
  if (works) state_.model.set_operators(ops::aten_operators());
  if (teacher_) teacher_->set_operators(ops::aten_operators());
  training.execution.use_compile = false;  // and nothing is recorded
  step_.emplace(make_step(state_, setup_, training, Recorder(), teacher_.get()));
  return false;
}

void Run::follow_course() {
  if (state_.course.planned > 0) plan_.total_steps = state_.course.total;
}

int64_t Run::schedule_steps() const { return state_.course.planned > 0 ? state_.course.planned : plan_.total_steps; }

double Run::progress() const { return state_.course.position_at(state_.step) / static_cast<double>(schedule_steps()); }

optim::ScheduledRates Run::rates() const {
  const double position = state_.course.position_at(state_.step);
  return {state_.learning_rate_factor * optim::learning_rate_at(schedule_, position, schedule_steps(), state_.plateau),
          optim::weight_decay_share(setup_.config.training.optimizer.decay_schedule, progress())};
}

bool Run::begins_decay() const {
  const auto before = optim::steps_before_decay(schedule_, schedule_steps());
  if (!before) return false;
  const auto begin = static_cast<double>(*before);
  const bool was_before = state_.step == 0 || state_.course.position_at(state_.step - 1) < begin;
  return was_before && state_.course.position_at(state_.step) >= begin;
}

std::optional<int64_t> Run::update(const std::function<bool()>& stop) {
  const State::Cursor before = state_.cursor();
  std::optional<int64_t> tokens;
  if (optim::AveragedOptimizer* const averages = optim::averages_of(*state_.optimizer))
    averages->set_progress(progress());
  try {
    tokens = run_update(*step_, state_.loader, plan_.micro_batches(state_.step), rates(), state_.step, stop);
  } catch (const std::exception&) {
    state_.rewind(before);
    throw;
  }
  if (tokens) {
    ++state_.step;
    if (step_->recording_failed()) state_.recording_failed = true;
  } else {
    state_.rewind(before);
  }
  return tokens;
}

void Run::try_update(int64_t micro_batches) {
  constexpr double kLearningRate = 0;
  const auto is_stopped = [] { return process::stop_signal() != 0; };
  (void)run_update(*step_, state_.loader, micro_batches, kLearningRate, state_.step, is_stopped);
  device::synchronize(setup_.device.device);  // sync: it is timed, and what went wrong is found out here
  if (is_stopped()) throw Error(ExitCode::interrupted, "interrupted");
}

Evaluator& Run::evaluator() {
  const Config& config = setup_.config;
  const TrainingConfig& training = config.training;
  if (!evaluator_) {
    evaluator_.emplace(setup_.corpus, batches::BatchShape{training.batch_size, config.sequence_length()},
                       EvaluationRule{.eval_batches = training.cadence.eval_batches,
                                      .sequences = state_.eval_sequences.value_or(0),
                                      .most = most_eval_sequences(training, state_.course.planned),
                                      .takes_neighbours = !state_.eval_sequences,
                                      .packing = config.data.packing},
                       setup_.device.device, setup_.precision, setup_.mesh);
  }
  return *evaluator_;
}

int64_t updates_before_timing(at::Device device, int64_t wanted) {
  return std::max<int64_t>(wanted, device.is_cuda() ? Recorder::kRunsBefore + 1 : 0);
}

}  // namespace gpt::run
