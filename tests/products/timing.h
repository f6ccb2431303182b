// What the *_bench programs time: the CPU time of one thread, or the time of several.
#pragma once

#include <time.h>

#include <chrono>

#include "gpt/core/statistics.h"

namespace gpt::ops {

inline double cpu_milliseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// Wall-clock time.
template <class Work>
double milliseconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace gpt::ops
