#include "gpt/diagnose/configuration.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "gpt/batches/data_loader.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/config/automatic.h"
#include "gpt/config/batch.h"
#include "gpt/config/rules.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/processors.h"
#include "gpt/data/corpus.h"
#include "gpt/device/precision.h"
#include "gpt/diagnose/checkpoint_check.h"
#include "gpt/diagnose/place.h"
#include "gpt/diagnose/update_time.h"
#include "gpt/exchange/import.h"
#include "gpt/model/compile.h"
#include "gpt/ops/probe.h"
#include "gpt/plan/batch_choice.h"
#include "gpt/plan/card_estimate.h"
#include "gpt/plan/data_checks.h"
#include "gpt/plan/disk_checks.h"
#include "gpt/plan/model_checks.h"
#include "gpt/plan/out_of_memory.h"
#include "gpt/plan/processes.h"
#include "gpt/plan/quantized_check.h"
#include "gpt/plan/resolve.h"
#include "gpt/plan/savers.h"
#include "gpt/plan/sent_bytes.h"
#include "gpt/plan/time_checks.h"
#include "gpt/run/find_length.h"
#include "gpt/run/finished.h"
#include "gpt/run/folder.h"
#include "gpt/run/initial_weights.h"
#include "gpt/run/longer_run.h"
#include "gpt/run/same_run.h"
#include "gpt/run/state.h"
#include "gpt/train/announce.h"
#include "gpt/train/task_evaluations.h"

namespace gpt::diagnose {
namespace {

// What of the settings contradicts the device or each other there, as gpt-train would refuse it; nothing where nothing does.
std::optional<plan::Check> find_contradiction(const Config& config, const device::DeviceInfo& device) {
  config::Facts facts = facts_of(device, device::resolve_precision(config.training.precision, device));
  facts.processes = config.distributed.processes;
  facts.data_processes = config.distributed.data_processes();
  const auto refusal = config::find_refusal(config, facts);
  return refusal ? std::optional(plan::failed("settings", refusal->why, refusal->advice)) : std::nullopt;
}

// Examines the run part by part. A part that needs what an earlier one could not find is reported as not checked.
class Examination {
 public:
  Examination(const config::CommandLine& command, const PlanOptions& asked)
      : config_(command.config),
        command_(command),
        origin_(command.config_path.empty() ? "the command line" : command.config_path),
        asked_(asked) {
    config_.distributed.processes = processes_;
  }

  plan::Checks run() {
    add(plan::passed("configuration", origin_ + " is valid"));
    attempt("output folder", "set training.resume_from: auto, none or the path of a checkpoint", [&] { find_start(); });
    if (asked_.is_arithmetic(config_)) {
      plan_without_data();
    } else {
      attempt("device", "set device: auto",
              [&] { place_ = examine_place(command_, asked_, config_.training.precision, checks_); });
      if (const auto check = place_ ? find_contradiction(config_, place_->device) : std::nullopt) add(*check);
      if (asked_.steps_per_epoch) {
        plan_without_data();
      } else {
        attempt("dataset", plan::data_fix(config_.data), [&] { examine_data(); });
      }
      choose_batch();
      if (config_.model.vocab_size)
        attempt("model", "lower the size of the model", [&] { examine_model(); });
      else
        add(asked_.steps_per_epoch
                ? plan::warned("model", "not checked: its vocabulary is not known without the dataset",
                               "set model.vocab_size")
                : plan::warned("model", "not checked: the vocabulary comes from the dataset, which could not be read",
                               "repair the dataset"));
    }
    if (plan_) attempt("time", "add --seconds-per-step", [&] { examine_time(); });
    if (several_.processes > 1) add(plan::check_processes(several_));
    if (config_.model.vocab_size && !asked_.is_elsewhere())
      attempt("disk", "choose another output_dir", [&] {
        const auto bytes = run::checkpoint_file_bytes(config_, corpus_ ? corpus_->tokenizer.get() : nullptr);
        const bool has_validation = corpus_ && corpus_->validation.size() > 0;
        for (plan::Check& check :
             plan::check_disk(config_.output_dir, config_.training, static_cast<double>(bytes), has_validation))
          add(std::move(check));
      });
    return std::move(checks_);
  }

 private:
  void add(plan::Check check) { checks_.push_back(std::move(check)); }

  void attempt(const std::string& name, const std::string& fix, const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& e) {
      if (e.code() == ExitCode::interrupted) throw;
      // A folder that holds another run is detected with the data, and fixed in the configuration.
      const bool is_other_run = e.code() == ExitCode::checkpoint;
      add(plan::failed(is_other_run ? "output folder" : name, e.what(),
                       is_other_run ? fmt::format("set output_dir: {}", run::next_free_folder(config_.output_dir))
                                    : fix));
    } catch (const std::exception& e) { add(plan::failed(name, first_line(e.what()), fix)); }
  }

  // The checkpoint that gpt-train would begin with.
  void find_start() {
    const std::string& from = config_.training.resume_from;
    const bool is_about_folder = !asked_.steps_per_epoch || command_.origins.count("output_dir") > 0;
    if (is_about_folder) start_ = run::peek_run(config_.output_dir);
    // What is left is counted from there, whatever the folder of the run has.
    if (!asked_.checkpoint.empty()) {
      if (const auto checkpoint = add_checkpoint(asked_.checkpoint)) named_step_ = checkpoint->step;
    }
    if (checkpoint::names_checkpoint(from)) {
      auto checkpoint = add_checkpoint(from);
      if (!start_ && checkpoint) start_ = run::StartingPoint{std::move(*checkpoint), from};
    }
    if (start_) go_on_from_start();
    const std::string& initial = config_.training.init_from;
    if (start_ || initial.empty()) return;
    if (exchange::is_hugging_face(initial)) return add_foreign(initial);
    if (auto checkpoint = add_checkpoint(initial)) {
      initial_ = run::initial_weights(std::move(*checkpoint), config_, command_.origins);
      initial_->model.clear();  // its tensors are large
    }
  }

  // A model that another program made, to begin a run with.
  void add_foreign(const std::string& path) {
    try {
      initial_ = run::read_initial_weights(config_, command_.origins);
      initial_->model.clear();  // its tensors are large
      const auto parameters = static_cast<double>(layout::parameter_count(config_.model));
      add(plan::passed("checkpoint", fmt::format("{}: {} parameters to begin with", path, format_count(parameters))));
    } catch (const Error& error) {
      if (error.code() != ExitCode::checkpoint) throw;
      add(plan::failed("checkpoint", error.what(),
                       "name a folder with config.json, model.safetensors and tokenizer.json"));
    }
  }

  // What the run chose when it began, unless the folder holds another run.
  void go_on_from_start() {
    const Config& saved = start_->checkpoint.config;
    Config config = config_;
    config::keep_choices(config, command_.origins, saved);
    Config compared = config;
    if (!compared.model.vocab_size) compared.model.vocab_size = saved.model.vocab_size;
    try {
      (void)run::require_same_configuration(*start_, compared);
      config_ = std::move(config);
    } catch (const Error& other_run) { leave_start(other_run); }
  }

  // What is asked may be asked of a new run as well.
  void leave_start(const Error& other_run) {
    add(plan::warned("output folder", other_run.what(),
                     fmt::format("set output_dir: {}; what follows is about a new run",
                                 run::next_free_folder(config_.output_dir))));
    start_.reset();
    config_ = command_.config;
  }

  data::Corpus load_data() {
    if (start_) {
      try {
        data::Corpus corpus = run::load_run_corpus(config_, start_);
        Config compared = config_;
        if (!compared.model.vocab_size) compared.model.vocab_size = corpus.vocab_size;
        changes_ = run::require_same_configuration(*start_, compared);
        return corpus;
      } catch (const Error& other_run) {
        if (other_run.code() != ExitCode::checkpoint) throw;
        leave_start(other_run);
      }
    }
    return initial_ ? run::load_corpus_for(*initial_, config_) : run::load_run_corpus(config_, std::nullopt);
  }

  std::optional<checkpoint::Checkpoint> add_checkpoint(const std::string& path) {
    plan::Check check;
    auto checkpoint = read_and_check(path, check);
    add(std::move(check));
    return checkpoint;
  }

  // The kernel of the attention here, or the one expected on the card.
  std::string attention(at::ScalarType type) const {
    const ModelConfig model = config_.model_in_stages();
    const ExecutionConfig& execution = config_.training.execution;
    return card_ ? plan::expected_attention(model, execution, place_->device, type)
                 : model::attention_path(model, execution, place_->device.device, type, /*training=*/true);
  }

  // As gpt-train chooses it, and divides the update among its processes. Where device or vocabulary are not known, nothing but the tokens of
  // an update matters, which are the same however it is divided.
  void choose_batch() {
    if (update_) return;
    TrainingConfig& training = config_.training;
    if (place_ && config_.model.vocab_size) {
      if (const auto batch = plan::choose(config_, means())) add(plan::passed("batch size", describe(*batch)));
    } else if (training.batch_size == 0) {
      config::set_batch_size(training, *training.total_batch_size);
      if (!asked_.is_arithmetic(config_))
        add(plan::warned("batch size",
                         "training.batch_size: auto is not chosen: it depends on the device and the vocabulary",
                         "set model.vocab_size, or follow the advice of the failed checks"));
    }
    update_ = Update{.divided = training, .undivided = training};
    plan::divide_update(config_, processes_);
    update_->divided = training;
  }

  plan::Means means() const {
    const device::Precision precision = device::resolve_precision(config_.training.precision, place_->device);
    return {.device = place_->device,
            .precision = precision,
            .attention = attention(precision.compute_type()),
            .memory = [this] { return place_->memory; },
            .processes = processes_,
            .cores = std::max<int64_t>(1, usable_processors() / processes_)};
  }

  // For data that are not here.
  void plan_without_data() {
    choose_batch();
    batches_per_epoch_ = *asked_.steps_per_epoch * config_.training.gradient_accumulation_steps;
    plan_length(asked_.seconds_per_step.value_or(0));
    begin_where_it_stopped();
    if (is_length_known())
      add(plan::passed("length", fmt::format("{} at {} an epoch", plural(plan_->total_steps, "step"),
                                             with_commas(plan_->steps_per_epoch))));
  }

  void plan_length(double update_seconds) {
    plan_ = run::plan_run(config_.training, batches_per_epoch_);
    run::TimedRun timed{.batches_per_epoch = batches_per_epoch_, .update_seconds = update_seconds};
    if (corpus_) timed.validation_tokens = corpus_->validation.size();
    if (config_.model.vocab_size) timed.checkpoint_bytes = run::checkpoint_file_bytes(config_, nullptr);
    const auto plan = run::plan_along_course(config_, timed, start_ ? &start_->checkpoint : nullptr);
    is_length_planned_ = plan.has_value();
    if (plan) plan_ = *plan;
  }
  bool is_length_known() const { return is_length_planned_ || !config_.training.schedule.has_time(); }
  // Once the time of an update is known.
  void plan_length_by(double update_seconds) {
    if (is_length_known()) return;
    plan_length(update_seconds);
    if (facts_) check_plan();
  }

  void check_plan() {
    if (config_.data.stages.empty()) add(plan::check_length(config_, *facts_, *plan_));
    add(plan::check_learning_rate(config_.training, *plan_));
    add(plan::check_validation(config_, *facts_, *plan_));
  }

  plan::Check check_start() const {
    const bool has_validation = corpus_ && corpus_->validation.size() > 0;
    if (const auto done = run::find_finished(*start_, config_, command_.origins, *plan_, has_validation))
      return done->is_foreign ? plan::failed("output folder", done->fact, done->remedy)
                              : plan::warned("output folder", done->fact, done->remedy);
    run::announce_changes(changes_);
    return plan::passed("output folder",
                        fmt::format("{} is at step {} of {}: the same command continues the run", start_->path,
                                    with_commas(start_->checkpoint.step), with_commas(plan_->total_steps)));
  }

  void begin_where_it_stopped() {
    if (start_) {
      run::move_before_decay(*start_, config_.training.schedule, plan_->steps_per_epoch);
      steps_done_ = start_->checkpoint.step;
      add(check_start());
      start_.reset();  // its tensors are large
    }
    steps_done_ = std::min(named_step_.value_or(steps_done_), plan_->total_steps);
  }

  void examine_data() {
    run::require_run_data(config_, origin_);
    const data::Corpus& corpus = corpus_.emplace(load_data());
    if (!config_.model.vocab_size) config_.model.vocab_size = corpus.vocab_size;
    add(plan::check_tokens(corpus, *config_.model.vocab_size));
    if (*config_.model.vocab_size < corpus.vocab_size) return;
    if (!config_.training.distillation.from.empty()) add(plan::check_teacher(config_, config_.data, corpus));
    if (config_.data.document_mask) add(plan::check_documents(config_.data, corpus));
    if (corpus.validation.size() > 0) add(plan::check_overlap(corpus));
    if (config_.training.cadence.sample_interval.count > 0 && corpus.tokenizer)
      add(plan::check_sample_prompt(config_.training.cadence, corpus));
    if (!config_.training.cadence.eval_tasks.empty()) {
      attempt("tasks", "see gpt-eval --help for what a task's file holds",
              [&] { add(plan::passed("tasks", train::TaskEvaluations(config_, corpus).describe())); });
    }
    if (place_)
      place_->memory.data = plan::resident_bytes(config_.data, corpus, place_->device.device, place_->memory.available);
    choose_batch();
    const batches::DataLoader loader(corpus.sources, config_.data, run::schedule_options(config_, corpus),
                                     place_ && !card_ ? place_->device.device : at::Device(at::kCPU));
    plan::DatasetFacts facts = plan::describe_data(corpus, loader);
    if (card_) facts.resident = place_ && place_->memory.data > 0;
    update_->divided = plan::with_real_batch(config_.training, facts);
    update_->undivided = plan::with_real_batch(update_->undivided, facts);
    batches_per_epoch_ = loader.batches_per_epoch();
    plan_length(asked_.seconds_per_step.value_or(0));
    add(plan::check_dataset(config_.data, config_.sequence_length(), facts));
    add(plan::check_batch(config_.training, facts));
    facts_ = std::move(facts);
    if (is_length_known()) check_plan();
    for (const std::string& stage : train::describe_stages(config_.data, config_, corpus))
      add(plan::passed("stage", stage));
    if (!card_)
      add(plan::check_workers(config_.data, facts_->resident, place_ && place_->device.device.is_cuda(), cores_));
    begin_where_it_stopped();
  }

  void examine_model() {
    const ModelConfig& model = config_.model;
    for (const auto check : {plan::check_parameters, plan::check_export}) add(check(model));
    if (!place_) {
      add(plan::warned("memory of the run", "not checked: it depends on the device and the precision",
                       "follow the advice of the failed checks above"));
      return;
    }
    const bool cuda = place_->device.device.is_cuda();
    const device::Precision precision = device::resolve_precision(config_.training.precision, place_->device);
    add(plan::check_vocabulary(model, cuda));
    const std::string kernel = attention(precision.compute_type());
    const plan::ActivationForm form =
        plan::activation_form(model, update_->divided, config_.distributed, place_->device, precision, kernel);
    add(plan::check_attention(config_.model_in_stages(), cuda, kernel));
    if (update_->divided.quantized.is_on())
      add(plan::check_quantized_forward(real(), place_->device, precision, !card_));
    examine_memory(form, precision, kernel);
    if (plan_) examine_speed(form, precision, kernel);
  }

  void examine_memory(const plan::ActivationForm& form, const device::Precision& precision, const std::string& kernel) {
    const ModelConfig& model = config_.model;
    place_->memory.exchange = plan::exchange_bytes(real(), precision.end_to_end, processes_);
    plan::Check memory = plan::check_memory(model, update_->divided, form, place_->memory);
    const Config config = real();
    plan::name_settings_that_fit(memory, {config, place_->device, kernel}, place_->memory);
    memory.savers = plan::find_savers({config, place_->device, kernel}, place_->memory.data);
    // Where memory is ample nobody needs to be told how to save it.
    const double needed = place_->memory.taken() + plan::estimate_memory(model, update_->divided, form).total();
    memory.shows_savers = needed > place_->memory.available / 2;
    constexpr double kWorthwhile = 0.05;
    std::erase_if(memory.savers, [&](const auto& saver) { return saver.bytes < kWorthwhile * needed; });
    if (processes_ > 1) {
      const std::string owners = fmt::format("; so in each of {} processes", processes_);
      memory.detail += owners, memory.answer.text += owners;
      several_ = plan::plan_processes(real(), precision.end_to_end);
      several_.threads = place_->device.device.is_cpu() ? at::get_num_threads() : 0, several_.memory = needed;
    }
    add(std::move(memory));
  }

  void examine_speed(const plan::ActivationForm& form, const device::Precision& precision, const std::string& kernel) {
    const Config config = real();
    UpdateFacts facts{config, update_->undivided, place_->device, precision, form, kernel, place_->memory};
    if (card_) {
      step_ = estimate_update(facts, *card_, several_).step;
      plan_length_by(step_->seconds);
      add(plan::check_compute(config.model, update_->divided, *plan_, std::nullopt));
      return;
    }
    plan::MemoryBudget memory = place_->memory;
    memory.available = std::min(place_->memory.available, place_->free_here);
    facts.corpus = corpus_ ? &*corpus_ : nullptr, facts.free_memory = memory.comfortable(), facts.cores = cores_;
    facts.product_speed = ops::measure_product_speed(place_->device.device, precision.compute_type());
    is_timed_ = !asked_.no_probe && !asked_.seconds_per_step;
    const std::optional<UpdateTime> time = is_timed_ ? time_update(facts) : std::nullopt;
    if (time) step_ = time->step, plan_length_by(step_->seconds);
    if (time && processes_ > 1) {
      attempt("processes", "give the loopback an address, or set distributed.processes: 1",
              [&] { compare_with_one(facts, several_, *step_); });
    }
    const bool is_known = time || asked_.seconds_per_step;
    const double speed = facts.product_speed * static_cast<double>(processes_);
    if (is_length_known())
      add(plan::check_compute(config.model, update_->divided, *plan_, is_known ? std::nullopt : std::optional(speed)));
    else
      add(plan::warned("length", "not known: how many updates fit into training.max_time follows from the time of one",
                       "leave --no-probe out, or give --seconds-per-step"));
    if (time) add(*time->speed);
  }

  void examine_time() {
    const Config config = real();
    if (asked_.seconds_per_step) {
      const int64_t tokens = asked_.is_arithmetic(config) ? 0 : plan::tokens_per_step(config);
      step_ = plan::StepTime{*asked_.seconds_per_step, tokens, "as given"};
    }
    if (!step_ && asked_.asks_for_cost())
      add(plan::warned("cost", "not computed: the time of a step is not known",
                       "follow the advice above, or add --seconds-per-step"));
    if (!step_ && !is_timed_) return;
    if (step_ && step_->tokens > 0) examine_data_speed(*step_);
    const int64_t validation_tokens = corpus_ ? corpus_->validation.size() : 0;
    add(plan::check_time(config, *plan_, steps_done_, step_, validation_tokens));
    if (!step_ || !asked_.asks_for_cost()) return;
    const plan::Pricing pricing = asked_.price_per_hour ? plan::Pricing{*asked_.price_per_hour, "", asked_.budget}
                                                        : plan::Pricing{*asked_.units_per_hour, "units", asked_.budget};
    add(plan::check_cost(pricing, plan::time_left(config, *plan_, steps_done_, step_->seconds, validation_tokens)));
  }

  void examine_data_speed(const plan::StepTime& step) {
    if (card_ || !corpus_) return;
    const double tokens_per_second = static_cast<double>(step.tokens) / step.seconds;
    if (const auto slowest = plan::measure_read_speed(*corpus_))
      add(plan::check_data_speed(slowest->path, slowest->bytes_per_second, tokens_per_second * corpus_->train.width()));
  }

  // The configuration with the batch that the data really give.
  Config real() const {
    Config config = config_;
    config.training = update_->divided;
    return config;
  }

  // The update with the batch that the data really give.
  struct Update {
    TrainingConfig divided, undivided;  // among the processes; as one would compute it
  };

  Config config_;
  const config::CommandLine& command_;
  const std::string origin_;
  const PlanOptions& asked_;
  const device::Card* card_ =
      asked_.gpu.empty() ? nullptr : &device::require_card("--gpu", asked_.gpu);  // one that is not here
  const int64_t cores_ = usable_cores(), processes_ = plan::count_processes(config_);
  plan::Checks checks_;
  std::optional<Place> place_;                  // set when the run could use it
  std::optional<run::StartingPoint> start_;     // until it has been compared with the run
  std::vector<std::string> changes_;            // since its checkpoint
  std::optional<run::InitialWeights> initial_;  // what a new run begins with; without the weights themselves
  int64_t steps_done_ = 0;
  std::optional<int64_t> named_step_;   // the step of --checkpoint
  bool is_timed_ = false;               // it was tried
  std::optional<plan::StepTime> step_;  // nothing where it is not known
  std::optional<data::Corpus> corpus_;
  int64_t batches_per_epoch_ = 0;
  std::optional<plan::DatasetFacts> facts_;
  std::optional<run::Plan> plan_;
  bool is_length_planned_ = false;  // of a run that follows a course
  std::optional<Update> update_;    // once its batch has been chosen
  plan::ProcessesPlan several_;     // where there are several, and their memory is known
};

}  // namespace

plan::Checks check_configuration(const config::CommandLine& command, const PlanOptions& asked) {
  return Examination(command, asked).run();
}

}  // namespace gpt::diagnose
