// What gpt-diagnose is asked about a run beyond whether it is sound: how long it takes, what it costs, and on which machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/config/option.h"

namespace gpt::diagnose {

struct PlanOptions {
  bool no_probe = false;
  std::string checkpoint;                  // the run goes on from there
  std::optional<double> seconds_per_step;  // instead of timing steps
  std::optional<int64_t> steps_per_epoch;  // instead of data
  std::string gpu, memory;                 // another machine's card; another size of memory
  std::optional<double> price_per_hour, units_per_hour, budget;

  bool asks_for_cost() const { return price_per_hour || units_per_hour; }
  // This machine does not matter.
  bool is_elsewhere() const { return steps_per_epoch || !gpu.empty(); }
  std::optional<double> memory_bytes() const;
  bool is_arithmetic(
      const UpdateConfig& config) const;  // about time and cost alone: nothing else is known about the run
};

std::vector<config::Option> options(PlanOptions& plan);

// Throws gpt::Error(config) where options contradict or lack each other. `only_shows`: the flag that makes gpt-diagnose show
// something instead of checking a run, or empty.
void require_consistent(const PlanOptions& plan, const config::CommandLine& command, const std::string& only_shows);

}  // namespace gpt::diagnose
