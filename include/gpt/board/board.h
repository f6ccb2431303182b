// All runs in some folders, followed by a thread, and what others are told of them. Every function may be called by any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpt/board/comparison.h"
#include "gpt/board/folder_watch.h"
#include "gpt/board/followed_run.h"
#include "gpt/board/run_names.h"

namespace gpt::board {

// What a stream has told of a run, and of the table of runs.
struct ToldRun {
  FollowedRun::Versions versions{0, 0, 0};
  report::SentCurves curves;
  std::map<std::string, std::string> head;  // by key, as JSON
};
struct ToldTable {
  std::map<std::string, uint64_t> news;  // by the run's name: its version
};

class Board {
 public:
  // `folders`: of runs, or such that hold folders of runs; new ones appear as they come. `controls`: pages may tell runs what to do.
  explicit Board(std::vector<std::string> folders, bool controls = false);
  ~Board();

  // The run that is all there is to show: its folder was named, and no other.
  std::optional<std::string> only_run();
  bool has(const std::string& name);
  std::optional<std::string> folder_of(const std::string& name);
  bool controls() const { return controls_; }

  // News as JSON: what has changed since what was told; empty where nothing has. The first message is a whole one. A run that is gone, or
  // that nobody knows, has nothing to tell.
  std::string news_of(const std::string& name, ToldRun& told);
  std::string news_of_all(ToldTable& told);
  // {"mean_loss": {...}, ...} as in a run's messages, and what those of another run must have alike to compare: "text" and "tokens", where
  // they are known.
  std::optional<std::string> curves_of(const std::string& name);
  std::string comparison_text();  // as Comparison has it
  std::string prometheus_text();

  // Waits until something is new, a moment is over or the board stops, and returns false then. `seen`: what it returned last, or 0.
  bool wait(uint64_t& seen, std::chrono::milliseconds most);
  void stop();  // what has been written by now is still told

 private:
  void follow();
  bool look(const std::vector<std::string>& changed, bool at_all);
  bool find_runs();
  FollowedRun* find(const std::string& name);

  std::vector<std::string> folders_;
  const bool controls_;
  FolderWatch watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<FollowedRun>> runs_;  // by folder
  RunNames names_;
  Comparison comparison_;
  uint64_t version_ = 1;
  bool is_stopping_ = false;
  std::thread follower_;
};

}  // namespace gpt::board
