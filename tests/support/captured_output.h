// What goes to standard output while a test looks on.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "gpt/core/output.h"

namespace gpt::test {

class CapturedOutput {
 public:
  CapturedOutput() {
    wait();
    testing::internal::CaptureStdout();
  }
  std::string text() {
    wait();
    return testing::internal::GetCapturedStdout();
  }

 private:
  static void wait() { output::flush({.patience = std::chrono::seconds(30)}); }  // a file takes everything at once
};

}  // namespace gpt::test
