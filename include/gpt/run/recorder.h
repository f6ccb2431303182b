// Runs the parts of a training step, and on a GPU records each as a graph once it has run a few times: what
// training.compile_mode reduce-overhead means, and max-autotune too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"
#include "gpt/device/graph.h"

namespace gpt::run {

class Recorder {
 public:
  // What is recorded apart: the first micro-batch of a lane overwrites the gradients, later ones add to them; and each shape
  // of a batch has kernels of its own.
  enum class Part { first_micro_batch, later_micro_batch, update };
  struct Key {
    Part part;
    int64_t sequences = 0, length = 0;
    size_t lane = 0;                               // whose gradients it adds to
    std::optional<int64_t> attention_window = {};  // of the batch
    bool has_starts = false;                       // it says where documents begin
    auto operator<=>(const Key&) const = default;
  };

  // Runs until libraries have chosen their kernels and every buffer that stays has been allocated.
  static constexpr int kRunsBefore = 3;

  explicit Recorder(std::unique_ptr<device::Graphs> graphs = nullptr)  // null: nothing is recorded
      : graphs_(std::move(graphs)) {}

  // `work` must do the same to the device whenever its key is the same: it reads and writes tensors that stay where they are,
  // and decides nothing by their values. Where recording it fails it is called again. Returns true if a graph was replayed
  // instead of calling it.
  bool run(const Key& key, const std::function<void()>& work);
  bool records() const { return static_cast<bool>(graphs_); }
  bool has_failed() const { return has_failed_; }  // to record; from then on it does not

 private:
  struct Recording {
    int runs = 0;
    std::unique_ptr<device::Graph> graph;
  };
  std::unique_ptr<device::Graph> record(const std::function<void()>& work);

  std::unique_ptr<device::Graphs> graphs_;
  std::map<Key, Recording> recordings_;
  bool is_announced_ = false, has_failed_ = false;
};

// One that records where compile_mode asks for it and nothing is in the way.
Recorder recorder_for(const TrainingConfig& training, const ModelConfig& model, c10::Device device);

}  // namespace gpt::run
