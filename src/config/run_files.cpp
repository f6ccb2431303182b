#include "gpt/config/run_files.h"

#include <algorithm>

namespace gpt {

bool is_checkpoint_name(const std::string& name) { return name.starts_with("ckpt") && name.ends_with(".pt"); }

bool belongs_to_run(const std::string& name) {
  const bool is_list = name.ends_with(".jsonl") && (name.starts_with("metrics") || name.starts_with("decisions"));
  return is_checkpoint_name(name) || is_list || name == kEffectiveConfig || name == kReportFile ||
         name == kStatusFile || name == kBaseFile || name == kRateChart || name == "samples" || name == "tensorboard";
}

bool holds_run(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return is_checkpoint_name(name) || name == kMetricsFile || name == kEffectiveConfig;
  });
}

}  // namespace gpt
