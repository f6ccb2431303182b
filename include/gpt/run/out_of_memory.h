// The end of a run that could not get memory: what was asked for, what held the rest, and what is left of the run.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/report/memory_use.h"

namespace gpt::run {

struct Shortage {
  std::string where = "before the first step";  // "in step 3", "in the validation after step 8"
  std::string what_is_left = "Nothing had been saved: the run begins anew";
  bool is_taken_by_others = false;  // nothing was refused, but soon the kernel would have ended the run
  bool is_saved = false;            // there is a checkpoint, which fixes the run's batch and precision
  double requested = 0, free = 0;   // bytes, the latter when memory was found to be short; 0: not known
  std::optional<report::MemoryUse> held =
      {};  // by tensors at their peak; in the first step workspace is in `activations`
};

// "out of memory in step 3: 512 MB was requested, and 120 MB is free", or "out of memory after step 3: other programs take it;
// 12 MB was free when the run saw that, and it waited in vain".
std::string to_text(const Shortage& shortage);

class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(Shortage shortage)
      : Error(ExitCode::memory, to_text(shortage)), shortage_(std::move(shortage)) {}
  const Shortage& shortage() const { return shortage_; }

 private:
  Shortage shortage_;
};

// What an allocator's message says was asked for: ours, LibTorch's for CPUs ("you tried to allocate 512 bytes") or for GPUs
// ("Tried to allocate 2.00 GiB"). 0 where it says nothing.
double requested_bytes(std::string_view message);

}  // namespace gpt::run
