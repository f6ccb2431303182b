// Times the classifier against ATen's operators on one thread of the CPU: CPU time, medians of alternating runs, and the memory
// that each takes at most, gradients included.
//
//   classifier_bench [ROUNDS]
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>

#include "gpt/ops/classifier.h"
#include "ops/operator_times.h"
#include "support/allocations.h"

namespace gpt::ops {
namespace {

struct Shape {
  int64_t rows, width, vocabulary, padded;
};

const Shape kShapes[] = {{768, 128, 65, 128}, {1024, 384, 8192, 8192}, {256, 768, 50257, 50304}};

// One contestant: the loss of x, and what its backward pass leaves behind.
struct Contestant {
  std::function<at::Tensor(const at::Tensor&)> loss;
  std::function<void()> clear;
  OperatorTimes times;
  int64_t peak = 0;

  void measure(const at::Tensor& x) {
    clear();
    const test::Allocations allocations;
    times.measure(loss, x, at::ones({}));
    peak = allocations.peak();
  }
};

void run(const Shape& shape, int rounds) {
  const auto& [N, C, V, Vp] = shape;
  const at::Tensor x = at::randn({N, C}), targets = at::randint(0, V, {N}, at::kLong), upstream = at::ones({});
  const Parameter head(at::randn({Vp, C}) / std::sqrt(static_cast<double>(C)));
  const at::Tensor weight = head.value().detach().clone().requires_grad_();
  at::Tensor padding = at::zeros({Vp});
  padding.narrow(0, V, Vp - V).fill_(-std::numeric_limits<float>::infinity());

  const ClassifierOptions options{V};
  Contestant ours{[&](const at::Tensor& x) { return classifier_loss(x, head, targets, options, upstream); },
                  [&] { head.clear_gradient(); },
                  {}};
  Contestant aten{[&](const at::Tensor& x) { return at::cross_entropy_loss(at::linear(x, weight, padding), targets); },
                  [&] { weight.mutable_grad() = at::Tensor(); },
                  {}};
  for (int round = 0; round < rounds; ++round) {
    ours.measure(x);
    aten.measure(x);
  }
  const double forward = median(ours.times.forward), both = median(ours.times.both),
               their_forward = median(aten.times.forward), their_both = median(aten.times.both);
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  fmt::print("{:>22} | {:9.3f} {:9.3f} {:5.2f}x | {:9.3f} {:9.3f} {:5.2f}x | {:8.1f} {:8.1f}\n",
             fmt::format("{} x {} x {}", N, C, Vp), forward, their_forward, their_forward / forward, both, their_both,
             their_both / both, megabytes(ours.peak), megabytes(aten.peak));
}

}  // namespace
}  // namespace gpt::ops

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 11;
  fmt::print("{:>22} | the loss alone, ms: ours, ATen | with gradients: ours, ATen    | memory, MB: ours, ATen\n",
             "rows x width x logits");
  for (const auto& shape : gpt::ops::kShapes) gpt::ops::run(shape, rounds);
}
