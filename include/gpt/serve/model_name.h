// What clients call a model.
#pragma once

#include <string>

namespace gpt::serve {

// The folder of a run, or the file where it is not the run's last checkpoint.
std::string model_name(const std::string& checkpoint);

}  // namespace gpt::serve
