// What the log writes to standard error while a test looks on.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "gpt/core/log.h"

namespace gpt::test {

class CapturedLog {
 public:
  CapturedLog() {
    wait();
    testing::internal::CaptureStderr();
  }
  ~CapturedLog() {
    if (!is_taken_) (void)text();  // GoogleTest captures once at a time
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;
  std::string text() {
    wait();
    is_taken_ = true;
    return testing::internal::GetCapturedStderr();
  }

 private:
  bool is_taken_ = false;

  static void wait() { log::flush({.patience = std::chrono::seconds(30)}); }  // a file takes everything at once
};

}  // namespace gpt::test
