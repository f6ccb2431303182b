// What --version prints and checkpoints remember.
#pragma once

#include <string>

namespace gpt {

std::string version_text();  // "gpt-train 0.1.0 (commit abc1234)\nLibTorch 2.11.0\nCUDA 13.0" or "CUDA not built"
std::string commit_id();     // short hash of the build's commit, "unknown" outside a checkout

}  // namespace gpt
