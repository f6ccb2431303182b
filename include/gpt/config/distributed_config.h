// The processes that compute a run together (src/distributed/README.md). One process is the usual case.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace gpt {

enum class ReduceDtype { float32, bfloat16 };  // how gradients travel from process to process

struct DistributedConfig {
  int64_t processes = 1;          // that gpt-train starts on this machine; 0 = auto: one for each usable GPU
  int64_t tensor_parallel = 1;    // how many neighbouring ones of them divide the model itself
  int64_t pipeline_parallel = 1;  // how many have its blocks between them, a stage each
  int64_t lanes = 1;              // partial sums of an update's gradients; a multiple of the processes for equal bits
  ReduceDtype reduce_dtype = ReduceDtype::float32;
  int64_t zero =
      0;  // 1: each process has a part of the optimizer's state; 2: and of the gradients' sums; 3: and of the weights
  double timeout = 10;                   // seconds of silence after which a process counts as lost
  int64_t restarts = 0;                  // how often gpt-train starts its processes again after it has lost one
  std::optional<int64_t> min_processes;  // how few may go on then; auto: as many as before

  // How many processes, or groups with one model between them, the sequences of an update are divided among.
  int64_t data_processes() const { return std::max<int64_t>(1, processes / model_processes()); }
  // Whether processes that have the same part of a model divide its weights among them.
  bool divides_weights() const { return zero > 2 && data_processes() > 1; }
  // How many processes have one model between them.
  int64_t model_processes() const { return tensor_parallel * pipeline_parallel; }
};

namespace config {
struct Option;
std::vector<Option> options(DistributedConfig& config);  // a row for each key
}  // namespace config

}  // namespace gpt
