#include "gpt/checkpoint/history.h"

#include <filesystem>

#include "gpt/config/run_files.h"
#include "gpt/core/error.h"

namespace gpt::checkpoint {

report::RunHistory history_beside(const std::string& checkpoint, int64_t last_step) {
  report::RunHistory history;
  try {
    report::read_metrics((std::filesystem::path(checkpoint).parent_path() / kMetricsFile).string(), last_step, history);
  } catch (const Error&) { return {}; }
  return history;
}

}  // namespace gpt::checkpoint
