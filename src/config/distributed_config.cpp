#include "gpt/config/distributed_config.h"

#include "gpt/config/option.h"

namespace gpt::config {

std::vector<Option> options(DistributedConfig& c) {
  constexpr double kMostProcesses = 4096;
  std::vector<Option> rows = {
      {.name = "processes",
       .target = NumberOrAuto{&c.processes},
       .help =
           "processes that compute each update together, all on this machine unless a launcher such as torchrun has started them; auto "
           "= one for each usable GPU, or one on a CPU; gpt-bench computes in one",
       .min = 1,
       .max = kMostProcesses,
       .aliases = {{"gpus"}, {"num_processes"}, {"nproc_per_node"}},
       .safe_on_resume = true,
       .tried = {"1", "2"}},
      {.name = "tensor_parallel",
       .target = &c.tensor_parallel,
       .help =
           "how many neighbouring processes divide the model itself: heads, hidden columns and vocabulary, in memory and in computing; "
           "each such group computes its share of an update's sequences, and its processes send each other activations in every layer; "
           "1 = every process has the whole model",
       .min = 1,
       .max = kMostProcesses,
       .safe_on_resume = true,
       .tried = {"1", "2"}},
      {.name = "pipeline_parallel",
       .target = &c.pipeline_parallel,
       .help =
           "how many processes have the blocks of the model between them, as stages one behind the other: each keeps the weights, gradients "
           "and optimizer's state of its own blocks, and micro-batches go through the stages one after the other, so that an update should "
           "have several times as many; 1 = every process has all blocks",
       .min = 1,
       .max = kMostProcesses,
       .safe_on_resume = true,
       .tried = {"1", "2"}},
      {.name = "lanes",
       .target = &c.lanes,
       .help =
           "partial sums in which the gradients of an update are added up, a power of two: a run computes the same bits with any number "
           "of processes that divides it; each further lane of a process takes the memory of the gradients once more",
       .min = 1,
       .max = kMostProcesses,
       .tried = {"1", "2"}},
      {.name = "reduce_dtype",
       .target = choice(c.reduce_dtype, {{"float32", ReduceDtype::float32}, {"bfloat16", ReduceDtype::bfloat16}}),
       .help = "type in which gradients are sent; bfloat16 halves the bytes, and sums stay float32",
       .safe_on_resume = true},
      {.name = "zero",
       .target = &c.zero,
       .help =
           "1 = ZeRO stage 1: each process keeps the optimizer's state of its part of the parameters alone, updates that part and sends it "
           "to the others (a part of Muon's is whole matrices); 2 = it also keeps the gradients of that part alone, which are then sent in every "
           "micro-batch; 3 = and its weights, so that those of a block come together before it computes, in every micro-batch; 0 = each "
           "keeps all",
       .min = 0,
       .max = 3,
       .aliases = {{"zero_stage"}},
       .safe_on_resume = true,
       .tried = {"0", "1", "2", "3"}},
      {.name = "timeout",
       .target = &c.timeout,
       .help = "seconds of silence after which a process counts as lost",
       .min = 1,
       .max = 86400,
       .safe_on_resume = true},
      {.name = "restarts",
       .target = &c.restarts,
       .help = "how often gpt-train starts its processes again from the last checkpoint after it has lost one",
       .min = 0,
       .max = 1e6,
       .safe_on_resume = true,
       .tried = {"0", "1"}},
      {.name = "min_processes",
       .target = &c.min_processes,
       .help = "how few processes may go on after a restart; auto = as many as before",
       .min = 1,
       .max = kMostProcesses,
       .safe_on_resume = true,
       .tried = {"auto", "1"}},
  };
  for (Option& row : rows) row.section = "distributed";
  return rows;
}

}  // namespace gpt::config
