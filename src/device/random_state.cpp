#include "gpt/device/random_state.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <mutex>

namespace gpt::device {

at::Tensor random_state(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(at::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void seed_random_state(at::Device device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace gpt::device
