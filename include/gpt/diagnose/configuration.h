// A whole configuration against this machine and its data, and a checkpoint against itself.
#pragma once

#include <string>

#include "gpt/config/config.h"
#include "gpt/diagnose/check.h"

namespace gpt {

// What a run of `config` would meet. A fault of the user's is a failed check and never an exception. `origin`: the
// configuration's name in messages.
Checks check_configuration(const Config& config, const std::string& origin);

// A checkpoint file, or the last one (ckpt.pt) of a run folder: read, and every hash compared.
Check check_checkpoint(const std::string& path);

}  // namespace gpt
