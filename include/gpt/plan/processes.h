// What a run of several processes takes and sends, and what it gains over one process: arithmetic on what was measured or estimated.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/config/config.h"
#include "gpt/plan/check.h"

namespace gpt::plan {

// Leaves of the update what the process computes that has the most micro-batches of it, all of them its own: with the whole model, where
// `processes` are those that divide the sequences.
void keep_busiest_part(UpdateConfig& config, int64_t processes);

// Seconds that all take together for what takes one of them, with so many threads, `alone` seconds: they take turns where there are more
// threads than cores.
double seconds_together(double alone, int64_t processes, int64_t threads, int64_t cores);

// A run in several processes. Times are seconds of an update; 0: not known. Both parts of a step are known, or neither is.
struct ProcessesPlan {
  int64_t processes = 1;
  int64_t threads = 0;        // that each computes with, on the CPU that all share; 0: each has a GPU
  int64_t model_parts = 1;    // among so many neighbours the model is divided, and what each computes for a micro-batch
  int64_t stages = 1;         // or so many have its blocks between them
  int64_t micro_batches = 1;  // of an update
  double memory = 0, sent = 0;    // bytes that each takes, and sends in an update
  bool may_send_less = false;     // distributed.reduce_dtype may be bfloat16
  double one = 0, computing = 0;  // computed by one process that has all of the CPU; by the busiest of several
  double sending = 0;             // beyond that: what computing waits for, or does not hide
  std::string computing_source = {}, sending_source = {};
  // Settings with which as many would take less time by the same arithmetic, and how much less.
  std::string faster = {};

  int64_t most_micro_batches() const {  // of a process
    const int64_t groups = processes / (model_parts * stages);
    return (micro_batches + groups - 1) / groups;
  }
  double bubble() const;  // the share of computing for which a stage waits, at the beginning and the end of an update
  double seconds() const { return computing + sending; }
  double gain() const { return one / seconds(); }  // in tokens/s
};
// What follows from the configuration: no threads, memory and times.
ProcessesPlan plan_processes(const UpdateConfig& config, bool end_to_end);

// A warning where one process would be faster.
Check check_processes(const ProcessesPlan& plan);

}  // namespace gpt::plan
