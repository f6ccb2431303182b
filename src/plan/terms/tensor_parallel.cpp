// Tensor parallelism: sums over the processes that divide a model. What it divides, ActivationBytes and largest_part() know.
#include "gpt/ops/kept_bytes.h"
#include "plan/sent_values.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

double sent_within_stage(const Sender& sender) {
  return tensor_sums_of_stage(sender.config, sender.end_to_end, sender.stage).bytes *
         static_cast<double>(sender.rounds());
}

// Beside what arrives, rows that are arranged for it.
double memory_of_tensor_sums(const Sender& sender) {
  const UpdateConfig& config = sender.config;
  if (config.distributed.tensor_parallel == 1) return 0;
  const double size = bytes_of_stream(config, sender.end_to_end).stream,
               bytes = static_cast<double>(tokens_at_once(config) * config.model.n_embd) * size;
  return bytes + distributed::memory_of_sum(bytes, std::min<double>(bytes, distributed::kStretchBytes),
                                            /*is_converted=*/false,
                                            /*is_narrow=*/size < ops::kFloatBytes);
}

}  // namespace

Term tensor_parallel() { return {.sent = sent_within_stage, .sending_memory = memory_of_tensor_sums}; }

}  // namespace gpt::plan::terms
