// What checkpoints are called: those that a run leaves in its folder, and the one that somebody asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/run_files.h"

namespace gpt::checkpoint {

constexpr const char *kLastCheckpoint = "ckpt.pt", *kBestCheckpoint = "ckpt_best.pt";
std::string numbered_checkpoint(int64_t step);  // ckpt_step_00001000.pt

std::string rollback_checkpoint(int64_t step);  // ckpt_rollback_00001000.pt, for training.on_divergence: rollback

std::string stable_checkpoint(int64_t step);  // ckpt_stable_00001000.pt, from before the decay of lr_schedule: wsd

bool is_numbered(const std::string& name);
bool is_for_rollback(const std::string& name);
bool is_stable(const std::string& name);
// The step that is in the name of one of these three; nothing for others.
std::optional<int64_t> step_in_name(const std::string& name);

// The checkpoints among the `names` of what a run's folder holds, as paths, the newest first: ckpt.pt, those with a step in their names,
// the best. Of one step the numbered one comes first.
std::vector<std::string> newest_first(const std::string& folder, const std::vector<std::string>& names);

// The file that a path stands for: its own, or the newest checkpoint of a folder, which is ckpt.pt where there is none.
std::string checkpoint_file(const std::string& path);

// The same, however it was spelled and wherever the program runs. What is not there any more was a folder, unless it ends in .pt.
std::string absolute_checkpoint(const std::string& path);

// Whether training.resume_from is a path, rather than a rule.
bool names_checkpoint(const std::string& resume_from);

}  // namespace gpt::checkpoint
