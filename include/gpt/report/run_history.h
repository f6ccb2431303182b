// What a report shows of a run: the curves, samples and events of all its starts, however long it takes, in bounded memory.
// Earlier starts are read back from metrics.jsonl and from the report that they wrote; neither is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/report/curve.h"
#include "gpt/report/device_use.h"
#include "gpt/report/listener.h"

namespace gpt::report {

struct RunHistory {
  static constexpr size_t kMaxSamples = 100, kMaxEvents = 500;  // the latest ones
  static constexpr size_t kMaxTasks = 20, kMaxTaskBytes = 100;  // the first ones
  static constexpr size_t kMaxLayers = 8;                       // of deeper models, so many from the first to the last
  static constexpr size_t kMaxSampleBytes = 10'000, kMaxEventBytes = 1'000;

  struct Event {
    int64_t step = 0;
    int64_t time = 0;  // in seconds since 1970, UTC
    std::string what;
    bool is_routine = false;  // as in EventRecord: the last of those that say the same stands for all
    int64_t times = 1;        // how many those were
  };

  // LayerNorms of one layer. The change: the norm of the update over that of the weights.
  struct Layer {
    std::string name;
    Curve gradient, weight, change;
  };

  Curve loss, learning_rate, grad_norm, tokens_per_second, peak_memory_mb, mfu;
  Curve validation_loss, bits_per_byte;
  // Values of DeviceUse; of several devices what the least busy one has, and the one with the least room. Memory as a share.
  Curve gpu_busy, cores_busy, cores_others, device_memory;
  std::map<std::string, Curve> tasks;  // by task and metric, such as "hellaswag acc_norm": the main metric of each
  std::vector<Layer> layers;
  double seconds = 0, tokens = 0;         // totals of the updates, as far as they were logged
  Curve seconds_at_step, tokens_at_step;  // the same, as they grew
  std::optional<StepRecord> last_step;
  std::vector<DeviceUse> last_devices;
  std::optional<EvaluationRecord> last_evaluation, best_evaluation;
  std::deque<SampleRecord> samples;  // oldest first, as are events
  std::deque<Event> events;

  void add(const StepRecord& step);
  void add(int64_t step, const std::vector<DeviceUse>& devices);
  void add(int64_t step, const LayerNorms& norms);
  void add(const LossRecord& loss);
  void add(const EvaluationRecord& evaluation);
  void add(const TaskRecord& task);
  void add(SampleRecord sample);
  void add(Event event);
};

// At most `size` bytes of a text, ending with a whole UTF-8 character and then an ellipsis if anything was cut off.
std::string clipped(std::string_view text, size_t size);

// The steps and evaluations of a metrics.jsonl up to `last_step`. Lines that make no sense are passed over, and a file that
// is not there has none; throws gpt::Error(disk) where it cannot be read.
void read_metrics(const std::string& path, int64_t last_step, RunHistory& history);

// One line of it; false where it makes no sense.
bool read_metrics_line(std::string_view line, int64_t last_step, RunHistory& history);

// The samples and events, up to `last_step`, from JSON that a report embeds: {"samples": [{"step", "text"}], "events":
// [{"step", "time", "what", "times"}]}, where only routine has "times". Anything else in it is passed over; text that is no JSON has none.
void read_samples_and_events(std::string_view json, int64_t last_step, RunHistory& history);

// How a run was when it wrote that JSON. One that neither ended nor stopped goes on, or was killed.
struct ReportedState {
  bool has_ended = false;
  std::string stopped;  // why, where it stopped before its end
  bool is_open() const { return !has_ended && stopped.empty(); }
};
std::optional<ReportedState> read_reported_state(std::string_view json);

}  // namespace gpt::report
