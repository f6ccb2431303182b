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
  std::string text() {
    wait();
    return testing::internal::GetCapturedStderr();
  }

 private:
  static void wait() { log::flush({.patience = std::chrono::seconds(30)}); }  // a file takes everything at once
};

}  // namespace gpt::test
