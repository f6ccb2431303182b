#include "gpt/ops/probe.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>

#include "gpt/core/error.h"
#include "gpt/core/running_clock.h"
#include "gpt/device/device.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/linear.h"
#include "gpt/ops/sdp_backends.h"

namespace gpt::ops {
namespace {

// Keeps LibTorch's warnings off standard error: an attention kernel that refuses gives its reasons as warnings.
class CollectWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (!text_.empty()) text_ += "; ";
    text_ += warning.msg();
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Through the same interface as a run's precision: LibTorch refuses to mix it with the older one.
class AllowTf32 {
 public:
  AllowTf32() : previous_(at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL)) {
    set(at::Float32Precision::TF32);
  }
  ~AllowTf32() { set(previous_); }
  AllowTf32(const AllowTf32&) = delete;
  AllowTf32& operator=(const AllowTf32&) = delete;

 private:
  static void set(at::Float32Precision precision) {
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, precision);
  }
  at::Float32Precision previous_;
};

// The same values on every device, drawing nothing from the run's random stream.
at::Tensor random(at::IntArrayRef shape, at::Device device) {
  constexpr uint64_t kSeed = 1337;
  return at::randn(shape, at::detail::createCPUGenerator(kSeed)).to(device);
}

// |a - b| / |b|
double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.to(at::kDouble);
  return ((a.to(at::kDouble) - reference).norm() / reference.norm()).item<double>();
}

// Inputs, products and result are each rounded once or twice, and the errors of a long sum average out.
double tolerance(at::ScalarType type) {
  const double epsilon = type == at::kBFloat16 ? std::ldexp(1, -8) : type == at::kHalf ? std::ldexp(1, -11) : 1e-6;
  return 4 * epsilon;
}

Probe judge(double error, at::ScalarType type) {
  if (error <= tolerance(type)) return {true, ""};
  return {false, fmt::format("wrong results: relative error {:.1e} where {:.1e} is expected", error, tolerance(type))};
}

Probe attempt(const std::function<Probe()>& body) {
  CollectWarnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  try {
    return body();
  } catch (const std::exception& e) {
    return {false, warnings.text().empty() ? first_line(e.what()) : first_line(warnings.text())};
  }
}

struct AttentionResult {
  at::Tensor output, grad;  // grad: of queries, keys and values together
};

constexpr int64_t kHeads = 2, kPositions = 64, kWidth = 64;
using Attend = std::function<at::Tensor(const at::Tensor& qkv)>;  // (1, T, 3 H D) -> (1, T, H D)

AttentionResult attend(const at::Tensor& qkv, const Attend& function) {
  const at::AutoGradMode grad(true);
  const at::Tensor leaf = qkv.detach().requires_grad_(), output = function(leaf);
  output.sum().backward();
  return {output.detach(), leaf.grad()};
}

Attend with_kernels(const SdpBackends& kernels) {
  return [kernels](const at::Tensor& qkv) {
    const ops::OnlySdpBackends only(kernels);
    const auto parts = qkv.view({1, kPositions, 3, kHeads, kWidth}).transpose(1, 3).unbind(2);  // each (1, H, T, D)
    return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true)
        .transpose(1, 2)
        .reshape({1, kPositions, kHeads * kWidth});
  };
}

// Compared with the unfused kernel in float32.
Probe probe_attention(at::Device device, at::ScalarType type, const Attend& function) {
  return attempt([&] {
    const at::Tensor qkv = random({1, kPositions, 3 * kHeads * kWidth}, device);
    const auto fused = attend(qkv.to(type), function);
    const auto reference = attend(qkv, with_kernels({.math = true}));
    const double error =
        std::max(relative_error(fused.output, reference.output), relative_error(fused.grad, reference.grad));
    return judge(error, type);
  });
}

// Seconds of one time of `work`: the best of a few, which take about so many `seconds`. What is short is done several times in a row, so
// that neither launching nor waiting counts.
double best_seconds(at::Device device, double seconds, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  constexpr double kSample = 5e-3;
  const auto measure = [&](int64_t count) {
    device::synchronize(device);  // sync: the work is timed
    const auto begin = Clock::now();
    for (int64_t i = 0; i < count; ++i) work();
    device::synchronize(device);
    return seconds_since(begin) / static_cast<double>(count);
  };
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  (void)measure(1);  // memory is touched, kernels are chosen
  double best = measure(1);
  const auto count = static_cast<int64_t>(std::ceil(kSample / best));
  do best = std::min(best, measure(count));
  while (Clock::now() < end);
  return best;
}

double flops_of_product(int64_t size) { return 2 * std::pow(static_cast<double>(size), 3); }

// FLOP/s of a product of two matrices of `size` x `size`.
double product_speed(at::Device device, at::ScalarType type, int64_t size, double seconds) {
  const at::NoGradGuard no_grad;
  // Random values: a GPU multiplies equal ones with less power, and so at a higher clock. Few are drawn, as the CPU does that.
  constexpr int64_t kDrawnRows = 64;
  const at::Tensor a = random({kDrawnRows, size}, device).to(type).repeat({size / kDrawnRows, 1});
  const parameters::Parameter weight(a.clone());
  return flops_of_product(size) / best_seconds(device, seconds, [&] { (void)ops::linear(a, weight); });
}

}  // namespace

Probe probe_product(at::Device device, at::ScalarType type) {
  return attempt([&] {
    const at::Tensor a = random({64, 64}, device);
    return judge(relative_error(at::matmul(a.to(type), a.to(type)), at::matmul(a, a)), type);
  });
}

Probe probe_tf32(at::Device device) {
  return attempt([&]() -> Probe {
    constexpr int64_t kSize = 512;
    const AllowTf32 allow;
    // TF32 has 10 bits of fraction and drops this 12th one; a sum of equal values of float32 keeps it.
    const at::Tensor a = at::full({kSize, kSize}, 1 + std::ldexp(1, -12), at::TensorOptions().device(device));
    const double value = at::matmul(a, a.new_ones({kSize, kSize})).select(0, 0).select(0, 0).item<double>();
    if (value == kSize) return {true, ""};
    return {false, "float32 products are computed in full float32 although TF32 is allowed"};
  });
}

Probe probe_attention(at::Device device, const SdpBackends& kernels, at::ScalarType type) {
  return probe_attention(device, type, with_kernels(kernels));
}

Probe probe_cpu_attention(at::ScalarType type) {
  return probe_attention(at::kCPU, type, [](const at::Tensor& qkv) { return ops::attention(qkv, {kHeads, kHeads}); });
}

double measure_product_speed(at::Device device, at::ScalarType type, double seconds) {
  constexpr int64_t kSize = 4096, kSmallest = 1024;
  if (device.is_cuda()) return product_speed(device, type, kSize, seconds);
  // On a few cores one of the large product would take longer than all the time that there is. It is no faster than a smaller one,
  // which fills them too.
  const double speed = product_speed(device, type, kSmallest, seconds / 2);
  int64_t size = kSize;
  while (size > kSmallest && flops_of_product(size) / speed > seconds / 8) size /= 2;
  return size == kSmallest ? speed : product_speed(device, type, size, seconds / 2);
}

double measure_copy_speed(at::Device device, double seconds) {
  // On a CPU touching so much new memory takes longer than all the time that there is, and hardly any cache holds a quarter of it.
  const int64_t wanted = device.is_cuda() ? 1'000'000'000 : 250'000'000;
  const int64_t bytes = std::min(wanted, std::max<int64_t>(1, device::free_bytes(device) / 8));
  const at::Tensor from = at::ones({bytes}, at::TensorOptions(device).dtype(at::kByte)), to = at::empty_like(from);
  return 2 * static_cast<double>(bytes) / best_seconds(device, seconds, [&] { to.copy_(from); });
}

}  // namespace gpt::ops
