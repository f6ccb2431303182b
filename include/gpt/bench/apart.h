// Measurements in processes of their own, so that memory, threads and allocators are not those of an earlier one.
#pragma once

#include <functional>
#include <optional>

#include "gpt/bench/learning.h"
#include "gpt/bench/measurement.h"
#include "gpt/config/config.h"
#include "gpt/plan/limits.h"

namespace gpt::bench {

// How a configuration is measured; nothing when a signal stopped it. Throws gpt::Error when it cannot be run.
using Measure = std::function<std::optional<Measurement>(const Config& config, const MeasurementLength& length)>;
using SpeedOf =
    std::function<std::optional<plan::MachineSpeed>(const Config& config)>;  // of this machine, with its products
using Learn = std::function<std::optional<Learning>(const Config& config, const LearningLength& length)>;

struct Measured {
  const Config& config;
  MeasurementLength length;
};

// As measure(), plan::measure_machine() and learn(), by the verbs of these names of the program that calls them. A signal that stops
// this program is passed on; then the result is nothing. The process never outlives this one, which a second Ctrl-C ends at once.
// Throws gpt::Error with the last line that the process wrote when it failed.
std::optional<Measurement> measure_apart(const Config& config, const MeasurementLength& length);
// The speed of this machine with the products of a configuration, measured once for each type and device.
std::optional<plan::MachineSpeed> machine_speed_apart(const Config& config);
std::optional<Learning> learn_apart(const Config& config, const LearningLength& length);

}  // namespace gpt::bench
