// Times an update of AdamW against ATen's fused kernel on the CPU, with moments in float32, bfloat16 and 8 bits: wall time, medians
// of alternating runs.
//
//   adamw_bench [ROUNDS [THREADS]]
#include "gpt/ops/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <chrono>
#include <string>

#include "gpt/parameters/alignment.h"
#include "ops/operator_times.h"

namespace gpt::ops {
namespace {

template <class Work>
double milliseconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

constexpr at::ScalarType kMomentTypes[] = {at::kFloat, at::kBFloat16, at::kByte};

void run(int64_t millions, bool is_rounded, int rounds) {
  const int64_t count = millions << 20, blocks = count / kParameterAlignment;
  const at::Tensor values = at::randn({count}), gradients = at::randn({count}), m = at::zeros({count}),
                   v = at::zeros({count}), rounded = is_rounded ? values.to(at::kBFloat16) : at::Tensor(),
                   decays = at::ones({blocks}, at::kByte), rate = at::full({}, 1e-4), divisor = at::full({}, 2.0),
                   no_inf = at::zeros({}), step = at::ones({});
  std::vector<AdamWBuffers> buffers;
  for (const at::ScalarType type : kMomentTypes) {
    AdamWBuffers& of = buffers.emplace_back(
        AdamWBuffers{values, gradients, at::zeros({count}, type), at::zeros({count}, type), rounded, decays});
    if (type == at::kByte) of.exp_avg_max = at::zeros({blocks}), of.exp_avg_sq_max = at::zeros({blocks});
  }
  std::vector<double> ours[std::size(kMomentTypes)], aten;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < std::size(kMomentTypes); ++i) {
      ours[i].push_back(
          milliseconds([&] { adamw(buffers[i], {0.9, 0.99, 1e-8, 0.1}, {rate, step, divisor, no_inf}); }));
    }
    aten.push_back(milliseconds([&] {  // without a divisor, by which it would divide the gradients in memory
      at::_fused_adamw_({values}, {gradients}, {m}, {v}, {}, {step}, rate, 0.9, 0.99, 0.1, 1e-8, /*amsgrad=*/false,
                        /*maximize=*/false, /*grad_scale=*/{}, no_inf);
      if (is_rounded) rounded.copy_(values);
    }));
  }
  const double mine = median(ours[0]), theirs = median(aten),
               bytes = static_cast<double>(count) * (is_rounded ? 30 : 28);
  fmt::print("{:4} Mi {:>16} | {:8.2f} {:8.2f} {:5.2f}x | {:5.1f} GB/s | {:8.2f} {:5.2f}x | {:8.2f} {:5.2f}x\n",
             millions, is_rounded ? "and their copies" : "values", mine, theirs, theirs / mine, bytes / mine / 1e6,
             median(ours[1]), median(ours[1]) / mine, median(ours[2]), median(ours[2]) / mine);
}

}  // namespace
}  // namespace gpt::ops

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 11;
  at::set_num_threads(argc > 2 ? std::stoi(argv[2]) : 1);
  fmt::print("{:24} | ms: ours, ATen's        | ours       | bfloat16 moments | 8-bit moments\n", "");
  for (const int64_t millions : {1, 32}) {
    for (const bool is_rounded : {false, true}) gpt::ops::run(millions, is_rounded, rounds);
  }
}
