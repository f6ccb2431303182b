// Which keys were written out, and where: "training.batch_size" -> "configs/x.yaml:12:3" or "--batch_size". Where an alias was written,
// it is here too.
#pragma once

#include <map>
#include <string>

namespace gpt::config {

using Origins = std::map<std::string, std::string>;

}  // namespace gpt::config
