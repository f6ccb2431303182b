// Checkpoints that a thread of its own writes from a copy of the state, while training goes on.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpt/checkpoint/snapshot.h"

namespace gpt::train {

class BackgroundSave {
 public:
  // What one copy is written to.
  struct Files {
    std::vector<std::string> paths;   // in this order
    double best_before = 0;           // the best loss that the later ones have if the first cannot be written
    std::function<bool()> may_write;  // asked before each; where it says no, none is written any more
    std::function<void(const std::string& path, const checkpoint::Checkpoint& state)> save;
    std::function<bool(const std::string& from, const std::string& to)>
        link;  // a second name; false: it must be written
  };
  struct Outcome {
    std::vector<std::string> written, refused;  // paths that were written; what the disk said about others
    std::exception_ptr error = {};              // any other, with which it ended; or null
  };

  BackgroundSave() = default;
  ~BackgroundSave() { join(); }
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Nothing may be under way. Throws std::bad_alloc where there is no memory for the copy.
  void copy(checkpoint::Checkpoint state) { copy_ = snapshot_.take(std::move(state)); }
  // Begins to write the copy. Where there is no thread for it, it is written once this returns.
  void begin(Files files);

  bool is_under_way() const { return is_under_way_; }  // begun, and its outcome has not been taken
  bool has_ended() const { return has_ended_; }        // take() need not wait
  Outcome take();                                      // waits until everything is written
  void release();                                      // the copy's memory, while nothing is under way

 private:
  void write(const Files& files);
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  checkpoint::Snapshot snapshot_;
  checkpoint::Checkpoint copy_;
  Outcome outcome_;
  bool is_under_way_ = false;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

}  // namespace gpt::train
