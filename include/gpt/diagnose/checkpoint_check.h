// Whether a checkpoint can be used.
#pragma once

#include <optional>
#include <string>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/plan/check.h"

namespace gpt::diagnose {

// Every byte of it against its hash, and its parts against each other. `path`: a file, or the folder of a run, which stands for its
// ckpt.pt. Nothing where the check failed.
std::optional<checkpoint::Checkpoint> read_and_check(const std::string& path, plan::Check& check);
plan::Check check_checkpoint(const std::string& path);  // the same, for its result alone

}  // namespace gpt::diagnose
