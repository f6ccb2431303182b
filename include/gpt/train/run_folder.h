// The output folder of a run: lock, log, effective config, metrics, samples and checkpoints. One process at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/config/config.h"
#include "gpt/core/file.h"

namespace gpt {

class RunFolder {
 public:
  // Creates and locks the folder and copies the log into its train.log.
  explicit RunFolder(const std::string& path);

  const std::string& path() const { return path_; }
  std::string checkpoint_path() const { return path_ + "/ckpt.pt"; }
  std::string best_path() const { return path_ + "/ckpt_best.pt"; }
  std::string numbered_path(int64_t step) const;  // ckpt_step_00001000.pt
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }

  // What `resume_from` means here: `auto`: the newest checkpoint of this folder that can be read, none in an empty one;
  // `none`: nothing, and the folder must hold no run; a path: that checkpoint. Throws gpt::Error(checkpoint) when there
  // are candidates and none can be read: a run never starts over silently.
  std::optional<Checkpoint> find_checkpoint(const std::string& resume_from) const;

  void write_config(const Config& effective) const;
  void write_sample(int64_t step, const std::string& text) const;  // samples/step_00001000.txt
  // Metrics of steps beyond `step`, which the resumed run will log again, move to metrics.old.jsonl.
  void rewind_metrics(int64_t step) const;
  void remove_old_numbered(int64_t keep_last) const;
  // Throws gpt::Error(disk) when the checkpoints that this run will keep, of `bytes` each, do not fit beside those it has.
  void require_space(uint64_t bytes, int64_t keep_last) const;

 private:
  std::vector<std::string> numbered_checkpoints() const;  // newest first

  std::string path_;
  FolderLock lock_;
};

}  // namespace gpt
