#include "dropout_mask.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <mutex>

namespace gpt::ops::cpu {

DropoutMask draw_dropout_mask(double probability) {
  if (probability == 0) return {};
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  return {.key = at::check_generator<at::CPUGeneratorImpl>(generator)->random64(),
          .kept_of_65536 = static_cast<uint32_t>(std::max(1.0, std::round((1 - probability) * 65536)))};
}

}  // namespace gpt::ops::cpu
