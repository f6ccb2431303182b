// Tells a run what to do, and waits for what it says.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "gpt/control/message.h"

namespace gpt::control {

// As long as it takes, for the run looks between two updates, or as long as `patience` lasts. Throws gpt::Error: config where there is no such
// folder, failed_check where no run listens there, or no answer comes.
Answer tell(const std::string& folder, const Request& request, std::optional<std::chrono::seconds> patience = {});

// Whether a run that goes on there can be told anything.
bool may_be_told(const std::string& folder);

}  // namespace gpt::control
