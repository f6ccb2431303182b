#include "gpt/parallel/pipeline_schedule.h"

#include <algorithm>

namespace gpt::parallel {

std::vector<Turn> pipeline_schedule(int64_t stage, int64_t stages, int64_t micro_batches) {
  const int64_t ahead = most_in_flight(stage, stages, micro_batches);
  std::vector<Turn> turns;
  for (int64_t turn = 0; turn < micro_batches + ahead; ++turn) {
    if (turn < micro_batches) turns.push_back({Pass::forward, turn});
    if (const int64_t done = turn - (ahead - 1); done >= 0 && done < micro_batches)
      turns.push_back({Pass::backward, done});
  }
  return turns;
}

int64_t most_in_flight(int64_t stage, int64_t stages, int64_t micro_batches) {
  return std::min(stages - stage, micro_batches);
}

double bubble(int64_t stages, int64_t micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace gpt::parallel
