#include "dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <mutex>

namespace gpt::ops {
namespace {

uint64_t draw_on_cpu() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

}  // namespace

Dropout draw_dropout(double probability, const at::Tensor& x) {
  TORCH_CHECK(probability >= 0 && probability < 1, "dropout: the probability must be in [0, 1), got ", probability);
  if (probability == 0) return {};
  Dropout dropout;
  dropout.mask.kept_of_65536 = static_cast<uint32_t>(std::max(1.0, std::round((1 - probability) * 65536)));
  if (x.is_cpu()) {
    dropout.mask.key = draw_on_cpu();
  } else {
    dropout.key = at::empty({}, x.options().dtype(at::kLong)).random_();
  }
  return dropout;
}

}  // namespace gpt::ops
