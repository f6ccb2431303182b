#include "gpt/run/interruptions.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/process.h"

namespace gpt::run {

void require_no_signal(const Interruption& agreed, const char* message) {
  if (agreed.stop_signal == 0) return;
  process::request_stop(static_cast<int>(agreed.stop_signal));
  throw Error(ExitCode::interrupted, message);
}

Interruption Interruptions::agree(const Interruption& mine) {
  if (ranks_->size() == 1) return mine;
  Interruption agreed;
  if (answer_) {
    answer_();
    const auto* const said = said_.const_data_ptr<int64_t>();
    agreed = {said[0], said[1] != 0, said[2] != 0, said[3] != 0, said[4] != 0, said[5]};
  }
  said_ = at::zeros({6}, at::kLong);
  auto* const says = said_.data_ptr<int64_t>();
  says[0] = mine.stop_signal, says[1] = mine.lacks_memory, says[2] = mine.saves, says[3] = mine.is_time;
  says[4] = mine.is_asked, says[5] = mine.total_steps;
  answer_ = ranks_->begin_largest(said_);
  return agreed;
}

}  // namespace gpt::run
