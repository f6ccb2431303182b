// c10d's collectives, and which process is lost when one of them fails.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <exception>
#include <functional>

#include "gpt/distributed/watch.h"

namespace gpt::distributed {

using Backend = c10::intrusive_ptr<c10d::Backend>;
using Work = c10::intrusive_ptr<c10d::Work>;

class Collectives {
 public:
  // `device` is null where tensors are in the host's memory only. `watch` must outlive it.
  Collectives(Backend host, Backend device, const Watch& watch);

  c10d::Backend& backend_of(const at::Tensor& x) const { return x.is_cpu() ? *host_ : *device_; }
  c10d::Backend& host() const { return *host_; }

  // start() calls a backend for tensor x. All throw gpt::Error(peer), which names the process that is lost.
  template <typename Start>
  Work begin(const Start& start) const {
    require_all();
    try {
      return start();
    } catch (const std::exception& error) { fail(error); }
  }
  // Until it is done: in the host's time, looking after the others. What a GPU does is waited for by its current stream instead.
  void wait(const Work& work, const at::Tensor& x) const;
  // As wait(), also for a GPU; and until something else is so, which takes no time to ask.
  void wait_on_host(const Work& work, const at::Tensor& x) const;
  void wait_until(const std::function<bool()>& is_so) const;

 private:
  void require_all() const;  // throws where another process is lost
  [[noreturn]] void fail(const std::exception& error) const;

  const Backend host_, device_;
  const Watch& watch_;
};

}  // namespace gpt::distributed
