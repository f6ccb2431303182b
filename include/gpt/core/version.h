// What --version prints and checkpoints remember.
#pragma once

#include <string>
#include <string_view>

namespace gpt {

// "gpt-train 0.1.0 (commit abc1234)\nLibTorch 2.11.0\nCUDA 13.0" or "CUDA not built"
std::string version_text(std::string_view program = "gpt-train");
std::string commit_id();  // short hash of the build's commit, "unknown" outside a checkout

}  // namespace gpt
