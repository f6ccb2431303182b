#include "gpt/train/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"

namespace gpt {
namespace fs = std::filesystem;
namespace {

const std::string& created(const std::string& path) {
  create_folders(path);
  return path;
}

}  // namespace

RunFolder::RunFolder(const std::string& path) : path_(created(path)), lock_(path, ExitCode::checkpoint, "output_dir") {
  log::open_file(path_ + "/train.log");
}

std::string RunFolder::numbered_path(int64_t step) const { return fmt::format("{}/ckpt_step_{:08}.pt", path_, step); }

std::vector<std::string> RunFolder::numbered_checkpoints() const {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("ckpt_step_") && name.ends_with(".pt")) found.push_back(entry.path().string());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::optional<Checkpoint> RunFolder::find_checkpoint(const std::string& resume_from) const {
  if (resume_from != "auto" && resume_from != "none") return load_checkpoint(resume_from);
  std::vector<std::string> candidates = numbered_checkpoints();
  if (fs::exists(best_path())) candidates.push_back(best_path());
  if (fs::exists(checkpoint_path())) candidates.insert(candidates.begin(), checkpoint_path());
  if (candidates.empty()) return std::nullopt;
  if (resume_from == "none") {
    throw Error(ExitCode::checkpoint, fmt::format("{} already holds a run: choose another output_dir, remove the folder, or set "
                                                  "training.resume_from: auto to continue it", path_));
  }
  std::string reasons;
  for (const auto& candidate : candidates) {
    try {
      Checkpoint checkpoint = load_checkpoint(candidate);
      if (!reasons.empty()) log::warn(fmt::format("{}; continuing from {} (step {})", reasons, candidate, checkpoint.step));
      return checkpoint;
    } catch (const Error& error) {
      if (error.code() != ExitCode::checkpoint) throw;
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw Error(ExitCode::checkpoint, reasons + fmt::format("; no readable checkpoint is left in {}: restore one, or choose another "
                                                          "output_dir to start over", path_));
}

void RunFolder::write_config(const Config& effective) const {
  AtomicFile file(path_ + "/config.yaml");
  file.write(config::dump(effective));
  file.commit();
}

void RunFolder::write_sample(int64_t step, const std::string& text) const {
  create_folders(path_ + "/samples");
  AtomicFile file(fmt::format("{}/samples/step_{:08}.txt", path_, step));
  file.write(text + "\n");
  file.commit();
}

void RunFolder::rewind_metrics(int64_t step) const {
  if (!fs::exists(metrics_path())) return;
  std::istringstream lines(read_file(metrics_path(), ExitCode::disk));
  std::string kept, dropped, line;
  while (std::getline(lines, line)) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A line cut by a crash is no record of a step that is kept.
    const bool keep = record.is_object() && record.value("step", int64_t{0}) <= step;
    (keep ? kept : dropped) += line + "\n";
  }
  if (dropped.empty()) return;
  AppendFile(path_ + "/metrics.old.jsonl").line(dropped.substr(0, dropped.size() - 1));
  AtomicFile file(metrics_path());
  file.write(kept);
  file.commit();
}

void RunFolder::remove_old_numbered(int64_t keep_last) const {
  const auto numbered = numbered_checkpoints();
  for (size_t i = keep_last; i < numbered.size(); ++i) fs::remove(numbered[i]);
}

void RunFolder::require_space(uint64_t bytes, int64_t keep_last) const {
  const int64_t numbered = static_cast<int64_t>(numbered_checkpoints().size());
  // One more than is kept: a checkpoint is written beside the one it replaces.
  const uint64_t files = 1 + !fs::exists(checkpoint_path()) + !fs::exists(best_path()) + std::max<int64_t>(0, keep_last - numbered);
  const uint64_t needed = files * bytes, available = free_disk_space(path_);
  if (available >= needed) return;
  throw Error(ExitCode::disk,
              fmt::format("{}: the checkpoints of this run need {:.1f} MB and {:.1f} MB are free: free some space, lower "
                          "training.keep_last, or choose another output_dir", path_, needed / 1e6, available / 1e6));
}

}  // namespace gpt
