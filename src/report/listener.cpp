#include "gpt/report/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "gpt/core/log.h"

namespace gpt::report {

const TaskRecord::Metric& TaskRecord::main_metric() const {
  for (const char* name : {"acc_norm", "acc", "bits_per_byte"}) {
    const auto found = std::find_if(metrics.begin(), metrics.end(), [&](const Metric& m) { return m.name == name; });
    if (found != metrics.end()) return *found;
  }
  return metrics.front();
}

void Listeners::add(std::unique_ptr<Listener> listener, std::string lost) {
  entries_.push_back({.listener = std::move(listener), .lost = std::move(lost)});
}

template <typename Say>
void Listeners::tell(Say say) {
  for (Entry& entry : entries_) {
    try {
      say(*entry.listener);
    } catch (const std::exception& error) {
      if (!std::exchange(entry.has_failed, true))
        log::warn(fmt::format("{}; training continues, and {}", error.what(), entry.lost));
    }
  }
}

void Listeners::begin(const RunRecord& run) {
  tell([&](Listener& l) { l.begin(run); });
}
void Listeners::length(int64_t total_steps, double epochs) {
  tell([&](Listener& listener) { listener.length(total_steps, epochs); });
}
void Listeners::step(const StepRecord& step) {
  tell([&](Listener& l) { l.step(step); });
}
void Listeners::losses(const std::vector<LossRecord>& losses) {
  tell([&](Listener& listener) { listener.losses(losses); });
}

void Listeners::evaluation(const EvaluationRecord& evaluation) {
  tell([&](Listener& l) { l.evaluation(evaluation); });
}
void Listeners::task(const TaskRecord& task) {
  tell([&](Listener& l) { l.task(task); });
}
void Listeners::epoch(const EpochRecord& epoch) {
  tell([&](Listener& l) { l.epoch(epoch); });
}
void Listeners::timing(const TimingRecord& timing) {
  tell([&](Listener& l) { l.timing(timing); });
}
void Listeners::efficiency(const EfficiencyRecord& efficiency) {
  tell([&](Listener& l) { l.efficiency(efficiency); });
}
void Listeners::sample(const SampleRecord& sample) {
  tell([&](Listener& l) { l.sample(sample); });
}
void Listeners::event(const EventRecord& event) {
  tell([&](Listener& l) { l.event(event); });
}
void Listeners::activity(const ActivityRecord& activity) {
  tell([&](Listener& listener) { listener.activity(activity); });
}
void Listeners::stop(const StopRecord& stop) {
  tell([&](Listener& l) { l.stop(stop); });
}
void Listeners::end() {
  tell([](Listener& l) { l.end(); });
}

}  // namespace gpt::report
