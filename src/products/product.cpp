#include "gpt/products/product.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "gpt/device/host.h"
#include "gpt/products/tuned_product.h"
#include "gpt/simd/cpu_capability.h"
#include "product_cpu.h"

namespace gpt::ops {
namespace {

using cpu::MatrixLibrary;

// Below this, packing the weight costs more than it saves.
constexpr int64_t kMinRows = 16;

// Bytes for a thread.
constexpr double kOwnWorkspace = 1.3e6, kTileWorkspace = 3.3e6, kBFloat16Workspace = 1.15e6;

bool mkl_leaves_avx512_unused() {
#if defined(__x86_64__)
  return cpu::capability() >= cpu::Capability::AVX512 && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

// Whether products of our own are faster here than LibTorch's.
bool prefers_own(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return mkl_leaves_avx512_unused();
    case at::kBFloat16: return cpu::capability() >= cpu::Capability::AVX512_BF16;
    default: return false;
  }
}

void compute_by_aten(const Product& product) {
  const auto &a = product.a, &b = product.b, &bias = product.bias;
  const bool adds = product.adds;
  at::Tensor result = product.result;
  if (bias.defined()) {
    at::addmm_out(result, bias, a, b);
  } else if (a.scalar_type() != result.scalar_type() && result.is_cpu()) {
    // LibTorch has no product of 16 bits on a CPU that adds in float32.
    const at::Tensor apart = at::mm(a, b);
    adds ? result.add_(apart) : result.copy_(apart);
  } else if (a.scalar_type() != result.scalar_type()) {
    adds ? at::addmm_out(result, result, a, b, result.scalar_type()) : at::mm_out(result, a, b, result.scalar_type());
  } else {
    adds ? result.addmm_(a, b) : at::mm_out(result, a, b);
  }
  compute_epilogue(product);
}

void compute(const Product& product, MatrixLibrary library) {
  if (library == MatrixLibrary::own && cpu::can_multiply(product)) {
    cpu::multiply(product);
    compute_epilogue(product);
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

bool cpu::adds_bfloat16_products() { return prefers_own(at::kBFloat16); }

double cpu::product_workspace(at::ScalarType type) {
  const double of_onednn = type == at::kBFloat16 && host::cpu_has_bfloat16() ? kBFloat16Workspace : 0;
  const bool has_tiles = type == at::kBFloat16 && cpu::capability() == cpu::Capability::AVX512_AMX;
  return at::get_num_threads() * (has_tiles ? kTileWorkspace : prefers_own(type) ? kOwnWorkspace : of_onednn);
}

MatrixLibrary product_library(const at::Tensor& x) {
  if (!x.is_cpu() || tunes_products(x) || x.numel() < kMinRows * x.size(-1)) return MatrixLibrary::aten;
  const bool casts = at::autocast::is_autocast_enabled(at::kCPU);
  return prefers_own(casts ? at::autocast::get_autocast_dtype(at::kCPU) : x.scalar_type()) ? MatrixLibrary::own
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

void product_out(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, MatrixLibrary library) {
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
                             MatrixLibrary library, at::Tensor* gelu, GeluKernel gelu_kernel) {
  const bool tunes = library == MatrixLibrary::aten && tunes_products(rows);
  if (library == MatrixLibrary::aten && !tunes) return at::linear(rows, weight, bias);
  const at::Tensor result = at::empty({rows.size(0), weight.size(0)}, rows.options());
  if (gelu && tunes) *gelu = at::empty_like(result);
  compute({.a = rows,
           .b = weight.t(),
           .result = result,
           .bias = bias,
           .gelu = gelu ? *gelu : at::Tensor(),
           .gelu_kernel = gelu_kernel},
          library);
  return result;
}

at::Tensor product_through_gelu(const at::Tensor& a, const at::Tensor& b, const at::Tensor& x, const at::Tensor& sums,
                                GeluBackwardKernel kernel) {
  const at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  compute({.a = a,
           .b = b,
           .result = result,
           .gelu_input = x.view(result.sizes()),
           .sums = sums,
           .gelu_backward_kernel = kernel},
          MatrixLibrary::aten);
  return result;
}

void accumulate_product(const parameters::Parameter& weight, const at::Tensor& gradient, const at::Tensor& rows,
                        MatrixLibrary library, const at::Tensor& sums, SumsKernel kernel) {
  const at::Tensor& result = weight.gradient();
  compute({.a = gradient.t(),
           .b = rows,
           .result = result,
           .adds = weight.begin_contribution(),
           .sums_of_a = sums,
           .sums_of_a_kernel = kernel},
          library);
}

}  // namespace gpt::ops
