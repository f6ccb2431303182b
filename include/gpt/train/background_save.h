// Checkpoints that a thread of its own writes from a copy of the state, while training goes on.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpt/checkpoint/snapshot.h"

namespace gpt {

class BackgroundSave {
 public:
  // What one copy is written to.
  struct Files {
    std::vector<std::string> paths;   // in this order
    double best_before = 0;           // the best loss that the later ones have if the first cannot be written
    std::function<bool()> may_write;  // asked before each; where it says no, none is written any more
  };
  struct Outcome {
    std::vector<std::string> written, refused;  // paths that were written; what the disk said about others
    std::exception_ptr error = {};              // any other, with which it ended; or null
  };

  BackgroundSave() = default;
  ~BackgroundSave() { join(); }
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Copies the state, and begins to write it. Nothing may be under way. Throws std::bad_alloc where there is no memory for the copy,
  // and std::system_error where there is no thread.
  void begin(Checkpoint state, Files files);

  bool is_under_way() const { return thread_.joinable(); }  // begun, and its outcome has not been taken
  bool has_ended() const { return has_ended_; }             // take() need not wait
  Outcome take();                                           // waits until everything is written
  void release() { snapshot_.release(); }                   // the copy's memory, while nothing is under way

 private:
  void write(Checkpoint state, const Files& files);
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  Snapshot snapshot_;
  Outcome outcome_;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

}  // namespace gpt
