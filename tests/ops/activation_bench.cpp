// Times the activations against ATen's on one thread of the CPU: CPU time, medians of alternating runs.
//
//   activation_bench [ROUNDS]
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <fmt/format.h>

#include <string>

#include "gpt/ops/activation.h"
#include "ops/operator_times.h"

namespace gpt::ops {
namespace {

struct Kind {
  const char* name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& in)> ours, aten;
};

const Kind kKinds[] = {
    {"GELU", [](const at::Tensor& x, const at::Tensor&) { return activate(Activation::gelu, x); },
     [](const at::Tensor& x, const at::Tensor&) { return at::gelu(x, "tanh"); }},
    {"SwiGLU", [](const at::Tensor& x, const at::Tensor& in) { return activate_gated(Activation::silu, x, in); },
     [](const at::Tensor& x, const at::Tensor& in) { return at::silu(x) * in; }},
    {"SwiGLU, dropout 0.1",
     [](const at::Tensor& x, const at::Tensor& in) { return activate_gated(Activation::silu, x, in, {0.1}); },
     [](const at::Tensor& x, const at::Tensor& in) { return at::dropout(at::silu(x) * in, 0.1, /*train=*/true); }},
};

void run(const Kind& kind, int64_t rows, int64_t width, at::ScalarType type, int rounds) {
  const at::Tensor x = at::randn({rows, width}).to(type), upstream = at::randn({rows, width}).to(type);
  const at::Tensor in = at::randn({rows, width}).to(type).requires_grad_();
  OperatorTimes ours, aten;
  for (int round = 0; round < rounds; ++round) {
    for (const bool is_ours : {true, false}) {
      in.mutable_grad() = at::Tensor();
      (is_ours ? ours : aten)
          .measure([&](const at::Tensor& gate) { return (is_ours ? kind.ours : kind.aten)(gate, in); }, x, upstream);
    }
  }
  const double forward = median(ours.forward), both = median(ours.both), their_forward = median(aten.forward),
               their_both = median(aten.both);
  fmt::print("{:>20} {:>11} {:8} | {:7.3f} {:7.3f} {:5.2f}x | {:7.3f} {:7.3f} {:5.2f}x\n", kind.name,
             fmt::format("{} x {}", rows, width), c10::toString(type), forward, their_forward, their_forward / forward,
             both, their_both, their_both / both);
}

}  // namespace
}  // namespace gpt::ops

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 31;
  fmt::print("{:>20} {:>11} {:8} | forward, ms: ours, ATen  | with backward: ours, ATen\n", "", "rows x width", "type");
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto& kind : gpt::ops::kKinds) {
      gpt::ops::run(kind, 768, 512, type, rounds);
      gpt::ops::run(kind, 256, 3072, type, rounds);
    }
  }
}
