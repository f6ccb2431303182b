#pragma once

#include <string>

namespace gpt {

std::string host_name();  // of this machine; "?" where it cannot be told

}  // namespace gpt
