#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/load.h"
#include "gpt/config/rules.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "limits.h"

namespace gpt::config {
namespace {

// Faults of one key alone, whose flag need not be named twice.
class Faults {
 public:
  Faults(const std::string& origin, const Origins& origins) : origin_(origin), origins_(origins) {}

  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    const auto found = origins_.find(key);
    const std::string& where = found == origins_.end() ? origin_ : found->second;
    throw Error(ExitCode::config,
                where == "--" + key ? fmt::format("{} {}", where, what) : fmt::format("{}: '{}' {}", where, key, what));
  }

 private:
  const std::string& origin_;
  const Origins& origins_;
};

bool is_device(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "cuda") return true;
  constexpr std::string_view kPrefix = "cuda:";
  if (device.compare(0, kPrefix.size(), kPrefix) != 0) return false;
  const std::string index = device.substr(kPrefix.size());
  return !index.empty() && index.size() <= 3 &&
         std::all_of(index.begin(), index.end(), [](unsigned char c) { return std::isdigit(c); });
}

void validate_values(const Config& config, const Faults& faults) {
  const ModelConfig& model = config.model;
  if (!is_device(config.device))
    faults.fail("device", fmt::format("must be auto, cpu, cuda or cuda:N, got {}{}", in_quotes(config.device),
                                      config.device.starts_with("gpu")
                                          ? fmt::format("; did you mean 'cuda{}'?", config.device.substr(3))
                                          : ""));
  if (config.output_dir.empty()) faults.fail("output_dir", "must name a folder, got ''");
  const auto check_pattern = [&](const char* key, const std::string& pattern, const char* letters, const char* what) {
    if (pattern.empty() || pattern.find_first_not_of(letters) != std::string::npos)
      faults.fail(key, fmt::format("must be letters {}, got {}", what, in_quotes(pattern)));
  };
  check_pattern("model.window_pattern", model.window_pattern, "SL", "S (windowed) and L (full), such as SSSL");
  check_pattern("model.rope_pattern", model.rope_pattern, "RN", "R (rotated) and N (not), such as RRRN");
  const ScheduleConfig& schedule = config.training.schedule;
  if (schedule.learning_rate == 0 && schedule.min_lr > 0 && schedule.lr_schedule != LrSchedule::constant &&
      !schedule.finds_learning_rate)
    faults.fail("training.learning_rate", "must be above 0, got 0");
  constexpr int64_t kMultiple = 64;  // what kernels compute at a time
  if (model.attention == AttentionForm::blocks && model.attention_block % kMultiple != 0)
    faults.fail("model.attention_block",
                fmt::format("must be a multiple of {}, got {}; use {}", kMultiple, model.attention_block,
                            nearest_multiples(model.attention_block, kMultiple)));
}

}  // namespace

void validate(const Config& config, const std::string& origin, const Origins& origins) {
  validate_values(config, Faults(origin, origins));
  require_agreement(config, {}, origin, origins);
  // A run writes it out, and reads it again when it is resumed.
  if (const size_t bytes = dump(config).size(); bytes > kMostBytes) {
    throw Error(ExitCode::config,
                fmt::format("{}: written out, the configuration has {} bytes, and at most {} could be read "
                            "again; shorten its texts and lists",
                            origin, with_commas(static_cast<int64_t>(bytes)),
                            with_commas(static_cast<int64_t>(kMostBytes))));
  }
}

bool is_valid(const Config& config) {
  try {
    validate(config, "here");
    return true;
  } catch (const Error&) { return false; }
}

void require_data(const Config& config, const std::string& origin) {
  if (!config.data.text.empty() || config.data.dataset != DatasetName::none || !config.data.bin.empty()) return;
  throw Error(
      ExitCode::config,
      (origin.empty() ? "" : origin + ": ") +
          "no data to train on; name a text with --data FILE, or tokens with --bin FILE, or use --dataset shakespeare");
}

}  // namespace gpt::config
