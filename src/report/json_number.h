#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace gpt::report {

// JSON has neither NaN nor infinity: those are null.
inline nlohmann::ordered_json json_number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

}  // namespace gpt::report
