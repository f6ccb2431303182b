#pragma once

#include <cstdint>
#include <string>

#include "gpt/report/run_history.h"

namespace gpt::checkpoint {

// What the metrics beside a checkpoint's file say of its run up to `last_step`. Nothing where they are not there or cannot be read.
report::RunHistory history_beside(const std::string& checkpoint, int64_t last_step);

}  // namespace gpt::checkpoint
