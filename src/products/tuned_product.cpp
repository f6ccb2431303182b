#include "gpt/products/tuned_product.h"

#include <fmt/format.h>

#include <atomic>

#include "gpt/core/format.h"

namespace gpt::ops {
namespace {

std::atomic<std::optional<at::DeviceType>> tuned_device;  // the threads of autograd read it too

}  // namespace

void compute_epilogue(const Product& product) {
  if (product.gelu.defined()) product.gelu_kernel(product.result, product.gelu);
  if (product.gelu_input.defined()) product.gelu_backward_kernel(product.gelu_input, product.result, product.sums);
  if (product.sums_of_a.defined()) product.sums_of_a_kernel(product.a, product.sums_of_a);
}

TuneProducts::TuneProducts(bool is_on, at::DeviceType device) : before_(tuned_device) {
  if (is_on) tuned_device = device;
}

TuneProducts::~TuneProducts() { tuned_device = before_; }

bool tunes_products(const at::Tensor& x) { return tuned_device.load() == x.device().type(); }

#ifndef GPT_CUDA  // tuned_product_cuda.cpp has them
void compute_tuned(const Product& product, ComputeProduct by_libtorch) { by_libtorch(product); }

std::string chosen_products() { return ""; }

int64_t choose_products(const std::string& /*json*/) { return 0; }

Tuning tuning_so_far() { return {}; }
#endif

std::string to_text(const Tuning& tuning) {
  return fmt::format(
      "Measured {}: cuBLASLt has a faster algorithm for {}; one of each takes {:.3f} ms instead of {:.3f} ms",
      plural(tuning.products, "matrix product"), tuning.improved, 1e3 * tuning.seconds, 1e3 * tuning.libtorch_seconds);
}

}  // namespace gpt::ops
