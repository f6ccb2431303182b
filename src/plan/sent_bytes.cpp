#include "gpt/plan/sent_bytes.h"

#include <algorithm>

#include "plan/terms/terms.h"

namespace gpt::plan {

double exchange_bytes(const UpdateConfig& config, bool end_to_end, int64_t all_processes) {
  double sum = 0;
  for (const terms::Term& term : terms::all())
    if (term.sending_memory)
      sum += term.sending_memory({config, end_to_end, all_processes / config.distributed.model_processes()});
  return sum;
}

double sent_bytes(const UpdateConfig& config, bool end_to_end, int64_t all_processes) {
  double most = 0;
  for (int64_t stage = 0; stage < config.distributed.pipeline_parallel; ++stage) {
    double sum = 0;
    for (const terms::Term& term : terms::all())
      if (term.sent)
        sum += term.sent({config, end_to_end, all_processes / config.distributed.model_processes(), stage});
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace gpt::plan
