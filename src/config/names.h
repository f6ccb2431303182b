// Names as they are compared: '-' is '_', and capitals are small letters.
#pragma once

#include <string>
#include <string_view>

namespace gpt::config {

std::string normalised(std::string_view name);

}  // namespace gpt::config
