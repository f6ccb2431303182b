#include "gpt/train/background_save.h"

#include <utility>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/device/cpu_threads.h"

namespace gpt {

void BackgroundSave::begin(Checkpoint state, Files files) {
  Checkpoint copy = snapshot_.take(std::move(state));
  outcome_ = {};
  has_ended_ = false;
  thread_ = std::thread([this, copy = std::move(copy), files = std::move(files)]() mutable {
    write(std::move(copy), files);
    has_ended_ = true;
  });
}

BackgroundSave::Outcome BackgroundSave::take() {
  join();
  has_ended_ = false;
  return std::exchange(outcome_, {});
}

void BackgroundSave::write(Checkpoint state, const Files& files) {
  use_one_cpu_thread();
  for (const std::string& path : files.paths) {
    if (!files.may_write()) return;
    try {
      save_checkpoint(path, state);
      outcome_.written.push_back(path);
    } catch (const Error& error) {
      if (error.code() != ExitCode::disk) return (void)(outcome_.error = std::current_exception());
      outcome_.refused.emplace_back(error.what());
      if (path == files.paths.front()) state.best_val_loss = files.best_before;
    } catch (...) { return (void)(outcome_.error = std::current_exception()); }
  }
}

}  // namespace gpt
