// Within its scope LibTorch fills the memory of each new tensor with NaN, or the largest integer: whoever reads what was never written does
// not get the zeros of a fresh page.
#pragma once

#include "support/restore_context.h"

namespace gpt::test {

class PoisonedMemory {
 public:
  PoisonedMemory() {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);  // it fills with these alone
    at::globalContext().setDeterministicFillUninitializedMemory(true);
  }

 private:
  RestoreContext before_;  // made first, destroyed last
};

}  // namespace gpt::test
