// Times the residual sum and its normalization against ATen's operators on one thread of the CPU: CPU time, medians of
// alternating runs. "mixed" is a float32 residual with a bfloat16 branch, as under autocast.
//
//   norm_bench [ROUNDS [DROPOUT]]
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "gpt/ops/norm.h"
#include "ops/operator_times.h"

namespace gpt::ops {
namespace {

constexpr double kEps = 1e-5;

struct Types {
  const char* name;
  at::ScalarType x, branch;
};

constexpr Types kTypes[] = {{"float32", at::kFloat, at::kFloat},
                            {"bfloat16", at::kBFloat16, at::kBFloat16},
                            {"mixed", at::kFloat, at::kBFloat16}};

using Function = std::function<Normalized(const at::Tensor& x, const at::Tensor& branch)>;

void measure(OperatorTimes& times, const Function& function, const at::Tensor& x, const at::Tensor& branch,
             const at::Tensor& upstream) {
  double start = cpu_milliseconds();
  {
    const at::NoGradGuard no_grad;
    function(x, branch);
  }
  times.forward.push_back(cpu_milliseconds() - start);
  const at::Tensor x_leaf = x.detach().requires_grad_(), branch_leaf = branch.detach().requires_grad_();
  start = cpu_milliseconds();
  const Normalized result = function(x_leaf, branch_leaf);
  torch::autograd::backward({result.sum, result.normed}, {upstream, upstream});
  times.both.push_back(cpu_milliseconds() - start);
}

void run(Norm kind, const Types& types, int64_t rows, int64_t C, double dropout, int rounds) {
  const bool is_layernorm = kind == Norm::layernorm;
  const at::Tensor x = at::randn({rows, C}).to(types.x), branch = at::randn({rows, C}).to(types.branch),
                   upstream = at::randn({rows, C}).to(types.x);
  const Normalization norm{kind, kEps, Parameter(at::ones({C})),
                           is_layernorm ? Parameter(at::zeros({C})) : Parameter()};
  const Function aten_function = [&](const at::Tensor& x, const at::Tensor& branch) {
    const at::Tensor sum = x + at::dropout(branch, dropout, /*train=*/true);
    return Normalized{sum, is_layernorm ? at::layer_norm(sum, {C}, norm.weight.tracked(), norm.bias.tracked(), kEps)
                                        : at::rms_norm(sum, {C}, norm.weight.tracked(), kEps)};
  };
  const Function our_function = [&](const at::Tensor& x, const at::Tensor& branch) {
    return add_norm(norm, x, branch, {dropout});
  };
  OperatorTimes ours, aten;
  for (int round = 0; round < rounds; ++round) {
    measure(ours, our_function, x, branch, upstream);
    measure(aten, aten_function, x, branch, upstream);
  }
  const double forward = median(ours.forward), both = median(ours.both), their_forward = median(aten.forward),
               their_both = median(aten.both);
  fmt::print("{:>9} {:>11} {:8} | {:7.3f} {:7.3f} {:5.2f}x | {:7.3f} {:7.3f} {:5.2f}x\n",
             is_layernorm ? "LayerNorm" : "RMSNorm", fmt::format("{} x {}", rows, C), types.name, forward,
             their_forward, their_forward / forward, both, their_both, their_both / both);
}

}  // namespace
}  // namespace gpt::ops

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 31;
  const double dropout = argc > 2 ? std::stod(argv[2]) : 0.1;
  fmt::print("{:>9} {:>11} {:8} | forward, ms: ours, ATen  | with backward: ours, ATen\n", "", "rows x C", "type");
  for (const auto& types : gpt::ops::kTypes) {
    for (const auto kind : {gpt::Norm::layernorm, gpt::Norm::rmsnorm}) {
      gpt::ops::run(kind, types, 768, 128, dropout, rounds);
      gpt::ops::run(kind, types, 256, 768, dropout, rounds);
      gpt::ops::run(kind, types, 4096, 768, dropout, rounds);
      gpt::ops::run(kind, types, 4096, 384, dropout, rounds);
    }
  }
}
