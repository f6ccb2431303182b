// What checkpoints are called: those that a run leaves in its folder, and the one that somebody asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/run_files.h"

namespace gpt {

constexpr const char *kLastCheckpoint = "ckpt.pt", *kBestCheckpoint = "ckpt_best.pt";
std::string numbered_checkpoint(int64_t step);  // ckpt_step_00001000.pt

bool is_numbered(const std::string& name);
std::optional<int64_t> numbered_step(const std::string& name);  // its step; nothing unless it is a numbered one

// The file that a path stands for: its own, or the last checkpoint of a folder.
std::string checkpoint_file(const std::string& path);

// Whether training.resume_from is a path, rather than a rule.
bool names_checkpoint(const std::string& resume_from);

}  // namespace gpt
