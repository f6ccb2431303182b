// What the *_bench programs compare: CPU time of one thread for an operator and its backward pass, or the time of several threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

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

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct OperatorTimes {
  std::vector<double> forward, both;  // ms of each call: without gradients; with the backward pass

  void measure(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& x,
               const at::Tensor& upstream) {
    double start = cpu_milliseconds();
    {
      const at::NoGradGuard no_grad;
      function(x);
    }
    forward.push_back(cpu_milliseconds() - start);
    const at::Tensor leaf = x.detach().requires_grad_();
    start = cpu_milliseconds();
    function(leaf).backward(upstream);
    both.push_back(cpu_milliseconds() - start);
  }
};

}  // namespace gpt::ops
