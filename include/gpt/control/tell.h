// Tells a run what to do, and waits for what it says.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "gpt/control/message.h"

namespace gpt::control {

// The answer of the run, which looks between two updates: waits as long as it takes, or as `patience` lasts. Throws gpt::Error: config
// where there is no such folder, failed_check where no run listens there, or no answer comes.
Answer tell(const std::string& folder, const Request& request, std::optional<std::chrono::seconds> patience = {});

// Whether a run that goes on there can be told anything.
bool may_be_told(const std::string& folder);

}  // namespace gpt::control
