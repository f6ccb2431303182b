#include "gpt/train/background_save.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <utility>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"

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
  // One thread, because training computes with the others; LibTorch sets its own number when a thread asks for it first.
  (void)at::get_num_threads();
  omp_set_num_threads(1);
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
