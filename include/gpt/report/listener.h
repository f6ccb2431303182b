// What a run says about itself, to whoever listens: the console, metrics.jsonl, a report. The trainer does not know them; a
// new form of reporting is one class and one line where the listeners are made. Nothing here uses LibTorch.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/report/device_use.h"
#include "gpt/report/layer_norms.h"
#include "gpt/report/memory_use.h"

namespace gpt::report {

// A run, as it begins or resumes.
struct RunRecord {
  int64_t first_step = 0, total_steps = 0;  // updates done, and to do in all
  int64_t total_epochs = 0;                 // begun ones, too
  int64_t parameters = 0;
  std::string folder;                     // the run's folder
  std::string configuration;              // the effective one, as YAML
  std::string machine;                    // the device, the precision and the build, in lines
  double epochs = 0;                      // epochs that the steps make; 0 where they see texts in other proportions
  std::vector<std::string> changes = {};  // since the checkpoint of a run that resumes: "key: old -> new"
  // The settings that are not the defaults, by their keys.
  std::vector<std::pair<std::string, std::string>> settings = {};
  int64_t seed = 0;

  void lasts(int64_t steps, double of_epochs) {
    total_steps = steps, epochs = of_epochs, total_epochs = static_cast<int64_t>(std::ceil(of_epochs));
  }
};

// When something was so, which every line of metrics.jsonl says.
struct Moment {
  double time = 0;     // seconds since 1970, UTC
  int64_t tokens = 0;  // tokens that the run has been trained on, each as often as it was
};

// A step between two that are logged.
struct LossRecord {
  int64_t step = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0;
  Moment at = {};
};

// One logged step. Loss, learning rate and norm are its own; time and speed are means since the last one.
struct StepRecord {
  int64_t step = 0;  // updates done
  double loss = 0, learning_rate = 0, grad_norm = 0;
  double step_ms = 0, tokens_per_second = 0, sequences_per_second = 0;
  std::optional<double> mfu;  // share of the device's peak, where that is known
  double peak_memory_mb = 0;
  std::optional<MemoryUse> memory = {};  // what tensors take, part by part
  std::vector<DeviceUse> devices = {};   // of the run, since the last one that has them
  std::optional<LayerNorms> norms = {};  // with training.log_norms
  std::vector<double> wait_ms = {};      // of a step, by process: for the others; none where there is one, or on GPUs
  Moment at = {};
  double elapsed_seconds = 0, remaining_seconds = 0;  // in this start; to the end of the run, 0: not known
};

struct EvaluationRecord {
  int64_t step = 0;
  double loss = 0;                      // mean cross entropy in nats
  std::optional<double> bits_per_byte;  // nothing where the bytes of the text are not known
  bool is_best = false;
  double seconds = 0;
  std::optional<double> standard_error = {};  // error of the loss; nothing where the whole split was read
  Moment at = {};
  double perplexity() const { return std::exp(loss); }
};

// What came of one task (evaluate/task.h).
struct TaskRecord {
  struct Metric {
    std::string name;  // as gpt-eval calls it
    double value = 0;
    std::optional<double> standard_error = {};
  };
  int64_t step = 0;
  std::string task;
  std::vector<Metric> metrics = {};  // not empty
  int64_t examples = 0;              // or windows of a text
  double seconds = 0;
  Moment at = {};

  // The one that a curve shows: acc_norm, else acc, else bits_per_byte, else the first.
  const Metric& main_metric() const;
};

struct EpochRecord {
  int64_t epoch = 0;
  int64_t since_step = 0;  // the numbers speak for the updates after it; 0 = for the whole epoch
  double mean_loss = 0, seconds = 0, sequences_per_second = 0;
};

// Steps in a row that were timed together.
struct TimingRecord {
  int64_t steps = 0, tokens = 0;
  double seconds = 0;
  bool is_warm_up = false;  // allocators, caches and clocks were still settling

  TimingRecord& operator+=(const TimingRecord& next) {
    steps += next.steps, tokens += next.tokens, seconds += next.seconds;
    return *this;
  }
};

// How close the steps came to what a large product and a large copy would allow.
struct EfficiencyRecord {
  int64_t step = 0;
  double step_ms = 0, least_ms = 0;                  // a step on average, and at least with the speeds that follow
  double peak_flops = 0, copy_bytes_per_second = 0;  // of a large product and of a large copy
  Moment at = {};
  double share() const { return least_ms / step_ms; }
};

struct SampleRecord {
  int64_t step = 0;
  std::string text;
};

// Something that happened: a checkpoint, skipped updates, a signal, a rollback.
struct EventRecord {
  int64_t step = 0;
  std::string what;
  std::optional<Moment> at = {};  // set where it belongs among the metrics too
  bool is_routine = false;        // it happens again and again, and the last time is what matters
};

// A run that ends before its last step, as far as it can still say so.
struct StopRecord {
  int64_t step = 0;
  std::string why;  // "by SIGHUP", after "stopped"
};

// What the run does from now on.
struct ActivityRecord {
  int64_t step = 0;
  std::string what;              // "training", "validating", "evaluating tasks:", "saving", "writing a sample"
  std::string how_far = {};      // "40%"; empty where it has no parts
  double remaining_seconds = 0;  // to the end of the run, 0: not known
};

// The default of each function is not to listen. A function may throw: training continues.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void begin(const RunRecord& /*run*/) {}
  // The run has another length from now on, which may happen often.
  virtual void length(int64_t /*total_steps*/, double /*epochs*/) {}
  virtual void step(const StepRecord& /*step*/) {}
  // Losses since the last call, or the last step(), in their order.
  virtual void losses(const std::vector<LossRecord>& /*losses*/) {}
  virtual void evaluation(const EvaluationRecord& /*evaluation*/) {}
  virtual void task(const TaskRecord& /*task*/) {}
  virtual void epoch(const EpochRecord& /*epoch*/) {}
  virtual void timing(const TimingRecord& /*timing*/) {}
  virtual void efficiency(const EfficiencyRecord& /*efficiency*/) {}
  virtual void sample(const SampleRecord& /*sample*/) {}
  virtual void event(const EventRecord& /*event*/) {}
  virtual void activity(const ActivityRecord& /*activity*/) {}  // before each update, and often otherwise
  virtual void stop(const StopRecord& /*stop*/) {}
  virtual void end() {}  // every step is done
};

// All listeners, told in the order in which they were added. What one of them throws is a warning, given once for each, and neither ends
// the run nor keeps the others from hearing: a full disk is no reason to lose weeks.
class Listeners : public Listener {
 public:
  // `lost`: what is missing when it fails, for the warning ("metrics.jsonl is missing lines from here on").
  void add(std::unique_ptr<Listener> listener, std::string lost);

  void begin(const RunRecord& run) override;
  void length(int64_t total_steps, double epochs) override;
  void step(const StepRecord& step) override;
  void losses(const std::vector<LossRecord>& losses) override;
  void evaluation(const EvaluationRecord& evaluation) override;
  void task(const TaskRecord& task) override;
  void epoch(const EpochRecord& epoch) override;
  void timing(const TimingRecord& timing) override;
  void efficiency(const EfficiencyRecord& efficiency) override;
  void sample(const SampleRecord& sample) override;
  void event(const EventRecord& event) override;
  void activity(const ActivityRecord& activity) override;
  void stop(const StopRecord& stop) override;
  void end() override;

 private:
  struct Entry {
    std::unique_ptr<Listener> listener;
    std::string lost;
    bool has_failed = false;
  };
  template <typename Say>
  void tell(Say say);

  std::vector<Entry> entries_;
};

}  // namespace gpt::report
