#include "gpt/run/recorder.h"

#include <exception>
#include <string>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/model/compile.h"

namespace gpt::run {

Recorder recorder_for(const TrainingConfig& training, const ModelConfig& model, c10::Device device) {
  return Recorder(model::effective_mode(training, model, device).records ? device::graphs_of(device) : nullptr);
}

bool Recorder::run(const Key& key, const std::function<void()>& work) {
  if (graphs_) {
    Recording& recording = recordings_[key];
    if (recording.graph) {
      recording.graph->replay();
      return true;
    }
    if (++recording.runs <= kRunsBefore) {
      graphs_->run(work);
      return false;
    }
    recording.graph = record(work);
    if (recording.graph) return true;
    recordings_.clear();
    graphs_.reset();
    has_failed_ = true;
  }
  work();
  return false;
}

// Records the work and replays it for the first time. Null where that fails; then nothing is recorded any more.
std::unique_ptr<device::Graph> Recorder::record(const std::function<void()>& work) {
  std::string why;
  try {
    std::unique_ptr<device::Graph> graph = graphs_->make();
    graph->record(work);
    graph->replay();
    if (!std::exchange(is_announced_, true)) log::success("Recording the step as CUDA graphs");
    return graph;
  } catch (const std::exception& error) { why = first_line(error.what()); }
  log::warn("Failed to record the step as CUDA graphs: " + why);
  log::warn("Continuing without them");
  return nullptr;
}

}  // namespace gpt::run
