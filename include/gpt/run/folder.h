// The output folder of a run: lock, log, effective config, metrics, report, samples and checkpoints. One process at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/checkpoint/file_names.h"
#include "gpt/config/run_files.h"
#include "gpt/core/file.h"
#include "gpt/core/lock.h"

namespace gpt::run {

// The state a run begins with.
struct StartingPoint {
  checkpoint::Checkpoint checkpoint;
  std::string path;             // where its file is
  bool is_last = false;         // it is ckpt.pt of the run's own folder
  std::string started_by = {};  // as Checkpoint::started_by, of the run that begins here
  // The checkpoint is the newest of the run's own folder, to which nobody has gone back: the run becomes what it was to be.
  bool continues = false;
};

// Files in the folder of a run that would be in the way of the one that begins. They stay where they are until nothing can refuse it any more.
struct InTheWay {
  std::vector<std::string> names;
  std::string told =
      {};  // what is said of it, but for the name of their new folder: "Starting anew: the old run is now in "
  bool is_warning = false;
};

struct FoundStart {
  std::optional<StartingPoint> start;  // nothing = the run begins at its first step
  InTheWay in_the_way = {};
};

class Folder {
 public:
  // Creates and locks the folder and copies the log into its train.log. `needs`: what of a checkpoint's state this process loads.
  explicit Folder(const std::string& path, checkpoint::StateNeeds needs = {});
  // One that another process of the run has locked, and in which it alone decides what is written.
  static Folder of_first_process(const std::string& path, checkpoint::StateNeeds needs = {}) {
    return {path, std::move(needs), nullptr};
  }

  const std::string& path() const { return path_; }
  std::string checkpoint_path() const { return path_ + "/" + checkpoint::kLastCheckpoint; }
  std::string best_path() const { return path_ + "/" + checkpoint::kBestCheckpoint; }
  std::string numbered_path(int64_t step) const { return path_ + "/" + checkpoint::numbered_checkpoint(step); }
  std::string rollback_path(int64_t step) const { return path_ + "/" + checkpoint::rollback_checkpoint(step); }
  std::string stable_path(int64_t step) const { return path_ + "/" + checkpoint::stable_checkpoint(step); }
  std::string metrics_path() const { return path_ + "/" + kMetricsFile; }
  std::string decisions_path() const { return path_ + "/" + kDecisionsFile; }
  std::string report_path() const { return path_ + "/" + kReportFile; }
  std::string rate_chart_path() const { return path_ + "/" + kRateChart; }
  std::string status_path() const { return path_ + "/" + kStatusFile; }
  std::string samples_path() const { return path_ + "/samples"; }
  std::string tensorboard_path() const { return path_ + "/tensorboard"; }

  // What is written to path() goes into the folder that was locked. Otherwise somebody has moved or deleted that one while the
  // run went on, or has put something in its place.
  bool is_in_place() const { return !lock_ || lock_->is_in_place(); }
  // The place to save in then: the locked folder, wherever it is, or a fresh one where it is gone or another run has locked it. `reason`
  // says what has happened. Throws gpt::Error(disk).
  struct Refuge {
    std::string path, now, reason;  // to write to, and as people know it
  };
  Refuge refuge() const;

  checkpoint::Checkpoint load(const std::string& path) const { return checkpoint::load_checkpoint(path, needs_); }

  // Where the run begins; nothing is changed. `resume_from`:
  //   auto   the newest checkpoint of this folder that can be read
  //   none   a new run; the folder may hold no run except one that was started this way, which continues
  //   PATH   that checkpoint, or ckpt.pt of that folder; once this run has a checkpoint of its own, that one. A PATH inside
  //          this folder takes the run back to it, once.
  // What lies beyond the starting point (later checkpoints, unreadable ones) is in the way, as is all of an older run with
  // `restart`. Throws gpt::Error(checkpoint) when there are candidates and none can be read (a run never silently starts
  // over), and when the folder holds another run.
  FoundStart find_start(const std::string& resume_from, bool restart) const;

  // The run goes on from `path`, an earlier checkpoint of this folder. What lies beyond it is in the way, and the line about it begins
  // with `why`. Throws gpt::Error(checkpoint) where it cannot be read.
  FoundStart go_back(const std::string& path, const std::string& why) const;

  // The run begins: what is in its way moves into set_aside/1, or the next number, and a line says so.
  void set_aside(const InTheWay& in_the_way) const;

  // The checkpoint that the run's adapters go with gets a second name in this folder, so that it stays as it is, and where it is known, when
  // its own run goes on and replaces it. It takes no room; nothing happens where the file system has no second names, or is another one. Between
  // the two calls an older run may be set aside, with such a file of its own.
  void hold_base(const std::string& path) const;
  void keep_held_base() const;

  // Processes that a launcher starts again have the same --restart. It counts until an older run has been set aside, which a note in the
  // folder says, and no longer. `starts_before`: how often the launcher has started them before.
  bool is_still_to_restart(int64_t starts_before) const;

  // Writes effective_config.yaml, unless that is `config_path`, the user's file that the configuration came from. Where the disk
  // refuses, this and the next function warn.
  void write_config(const std::string& yaml, const std::string& config_path) const;
  // Metrics of steps beyond `step`, which the resumed run will log again, move to metrics.old.jsonl.
  void rewind_metrics(int64_t step) const;
  std::vector<std::string> numbered() const;  // the names of the numbered checkpoints, oldest first
  void remove_old_numbered(int64_t keep_last) const;
  void remove_rollbacks_but(std::optional<int64_t> kept_step) const;
  void remove_stable_but(int64_t kept_step) const;
  // Throws gpt::Error(disk) when the checkpoints that this run will keep, of `bytes` each, do not fit alongside those it has, without those
  // that are in its way.
  void require_space(uint64_t bytes, const TrainingConfig& training, const InTheWay& in_the_way) const;

 private:
  // The newest that can be read, of one or more; `reasons` says why those before it cannot.
  StartingPoint newest(std::string& reasons) const;
  InTheWay old_run() const;
  InTheWay beyond(const StartingPoint& start) const;
  void move_metrics_beyond(int64_t step) const;
  void remove_but(bool (*is_of_kind)(const std::string&), std::optional<int64_t> kept_step) const;

  Folder(std::string path, checkpoint::StateNeeds needs, std::unique_ptr<FolderLock> lock)
      : path_(std::move(path)), needs_(std::move(needs)), lock_(std::move(lock)) {}

  std::string path_;
  checkpoint::StateNeeds needs_;
  std::unique_ptr<FolderLock> lock_;  // none where another process has it
};

// The newest checkpoint of a folder that can be read; nothing where there is none. Changes nothing, and takes no lock.
std::optional<StartingPoint> peek_run(const std::string& folder);

bool holds_checkpoint(const std::string& folder);  // readable or not

// FOLDER-2, or the first higher number that does not exist yet: what messages offer for a new run.
std::string next_free_folder(const std::string& folder);

}  // namespace gpt::run
