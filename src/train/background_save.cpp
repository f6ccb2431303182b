#include "gpt/train/background_save.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/device/cpu_threads.h"

namespace gpt::train {

void BackgroundSave::begin(Files files) {
  outcome_ = {};
  has_ended_ = false;
  is_under_way_ = true;
  try {
    thread_ = std::thread([this, files] {
      device::use_one_cpu_thread();
      write(files);
    });
  } catch (const std::system_error& error) {
    log::info(fmt::format("Training waits until the checkpoint is written, for which there is no thread now: {}",
                          first_line(error.what())));
    write(files);
  }
}

BackgroundSave::Outcome BackgroundSave::take() {
  join();
  is_under_way_ = has_ended_ = false;
  return std::exchange(outcome_, {});
}

void BackgroundSave::release() {
  copy_ = {};
  snapshot_.release();
}

void BackgroundSave::write(const Files& files) {
  std::string same;  // a file of these bytes
  for (const std::string& path : files.paths) {
    try {
      if (!files.may_write()) break;
      if (same.empty() || !files.link(same, path)) files.save(path, copy_);
      outcome_.written.push_back(path);
      same = path;
    } catch (const Error& error) {
      if (error.code() != ExitCode::disk) {
        outcome_.error = std::current_exception();
        break;
      }
      outcome_.refused.emplace_back(error.what());
      same.clear();
      if (path == files.paths.front()) copy_.best_val_loss = files.best_before;
    } catch (...) {
      outcome_.error = std::current_exception();
      break;
    }
  }
  has_ended_ = true;
}

}  // namespace gpt::train
