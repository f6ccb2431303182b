#include "rule.h"

#include <fmt/format.h>

namespace gpt::config {

const std::vector<RefusalRule>& refusal_rules() {
  static const std::vector<RefusalRule> all = [] {
    std::vector<RefusalRule> rules;
    for (auto group : {model_rules, data_rules, batch_rules, distributed_rules, stage_rules, training_rules,
                       precision_rules, attention_rules})
      for (RefusalRule& rule : group()) rules.push_back(std::move(rule));
    return rules;
  }();
  return all;
}

std::vector<Cure> set_to_each(const std::string& key, const std::vector<int64_t>& values) {
  std::vector<Cure> cures;
  for (const int64_t value : values) cures.push_back(set_to(key, fmt::format("{}", value)));
  return cures;
}

std::vector<Cure> either(std::vector<Cure> some, const std::vector<Cure>& others) {
  some.insert(some.end(), others.begin(), others.end());
  return some;
}

Facts implied_facts(const Config& config) {
  const PrecisionConfig& precision = config.training.precision;
  Facts facts;
  if (config.device != "auto") facts.is_cpu = config.device == "cpu";
  if (!precision.use_amp || precision.dtype == Dtype::float32 || precision.dtype == Dtype::tf32)
    facts.computes_in_16_bits = facts.is_end_to_end = false;
  if (precision.use_amp && precision.dtype == Dtype::float16) facts.computes_in_16_bits = true;
  if (precision.dtype == Dtype::float16 || precision.amp_mode == AmpMode::autocast) facts.is_end_to_end = false;
  return facts;
}

}  // namespace gpt::config
