#include "gpt/ops/product.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "gpt/device/host.h"
#include "gpt/ops/tuned_product.h"

namespace at::native {

// result = beta * result + alpha * a b, all strided 2-d. LibTorch exports it, but the wheel has no header that declares it.
TORCH_API void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);

}  // namespace at::native

namespace gpt::ops {
namespace {

using cpu::MatrixLibrary;

// Below this, packing the weight for oneDNN costs more than the wider registers save.
constexpr int64_t kMinRows = 16;

// Of a thread.
constexpr double kFloat32Workspace = 0.55e6, kBFloat16Workspace = 1.15e6;

bool mkl_leaves_avx512_unused() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

bool prefers_onednn() {
  static const bool known = mkl_leaves_avx512_unused() && cpu::onednn_works();
  return known;
}

void compute_by_aten(const Product& product) {
  const auto& [a, b, of_product, adds, bias, gelu] = product;
  at::Tensor result = of_product;
  if (bias.defined()) {
    at::addmm_out(result, bias, a, b);
  } else if (a.scalar_type() != result.scalar_type()) {
    adds ? at::addmm_out(result, result, a, b, result.scalar_type()) : at::mm_out(result, a, b, result.scalar_type());
  } else {
    adds ? result.addmm_(a, b) : at::mm_out(result, a, b);
  }
  compute_gelu(product);
}

void compute(const Product& product, MatrixLibrary library) {
  if (library == MatrixLibrary::onednn) {
    at::native::mkldnn_matmul(product.a, product.b, product.result, /*beta=*/product.adds ? 1 : 0, /*alpha=*/1);
  } else {
    tunes_products(product.a) ? compute_tuned(product, compute_by_aten) : compute_by_aten(product);
  }
}

}  // namespace

bool cpu::rounds_products_from_float32() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && !host::cpu_has_bfloat16();
#else
  return false;
#endif
}

double cpu::product_workspace(at::ScalarType type) {
  const double of_thread = type == at::kFloat ? (prefers_onednn() ? kFloat32Workspace : 0)
                                              : (host::cpu_has_bfloat16() ? kBFloat16Workspace : 0);
  return at::get_num_threads() * of_thread;
}

bool cpu::onednn_works() {
  try {
    const at::Tensor one = at::ones({1, 1}, at::kFloat);
    product(one, one, MatrixLibrary::onednn);
    return true;
  } catch (const c10::Error&) { return false; }
}

MatrixLibrary product_library(const at::Tensor& x) {
  const bool float32_on_cpu =
      x.is_cpu() && x.scalar_type() == at::kFloat && !at::autocast::is_autocast_enabled(at::kCPU);
  return float32_on_cpu && prefers_onednn() && x.numel() >= kMinRows * x.size(-1) ? MatrixLibrary::onednn
                                                                                  : MatrixLibrary::aten;
}

at::Tensor in_product_type(const at::Tensor& x) {
  const auto device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return x;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), x, device);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, MatrixLibrary library) {
  if (library == MatrixLibrary::aten && !tunes_products(a)) return at::mm(a, b);
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  product_out(result, a, b, library);
  return result;
}

void product_out(at::Tensor result, const at::Tensor& a, const at::Tensor& b, MatrixLibrary library) {
  if (result.scalar_type() != a.scalar_type()) {
    result.copy_(product(a, b, library));
  } else {
    compute({.a = a, .b = b, .result = result}, library);
  }
}

void add_product(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, MatrixLibrary library) {
  compute({.a = a, .b = b, .result = result, .adds = true}, library);
}

at::Tensor product_with_bias(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                             MatrixLibrary library, at::Tensor* gelu) {
  if (library == MatrixLibrary::aten && tunes_products(rows)) {
    const at::Tensor result = at::empty({rows.size(0), weight.size(0)}, rows.options());
    if (gelu) *gelu = at::empty_like(result);
    compute({.a = rows, .b = weight.t(), .result = result, .bias = bias, .gelu = gelu ? *gelu : at::Tensor()}, library);
    return result;
  }
  if (library == MatrixLibrary::aten) return at::linear(rows, weight, bias);
  at::Tensor result = product(rows, weight.t(), library);
  if (bias.defined()) result.add_(bias);
  return result;
}

void accumulate_product(const Parameter& weight, const at::Tensor& gradient, const at::Tensor& rows,
                        MatrixLibrary library) {
  const at::Tensor& result = weight.gradient();
  // A CPU has no product of 16 bits that adds in float32.
  if (result.is_cpu() && rows.scalar_type() != result.scalar_type()) {
    weight.add_to_gradient(at::mm(gradient.t(), rows));
    return;
  }
  compute({.a = gradient.t(), .b = rows, .result = result, .adds = weight.begin_contribution()}, library);
}

}  // namespace gpt::ops
