#include "gpt/device/cpu_threads.h"

#include <ATen/Parallel.h>

namespace gpt {

void use_cpu_threads(int64_t count) {
  if (count > 0) at::set_num_threads(static_cast<int>(count));
}

}  // namespace gpt
