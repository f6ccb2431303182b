// Times an update of AdamW against ATen's fused kernel on the CPU, with moments in float32, bfloat16 and 8 bits: wall time, medians
// of alternating runs. The weights are float32, with and without copies in bfloat16, or bfloat16 alone, with gradients in bfloat16; ATen's
// moments are bfloat16 then, too.
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

#include <string>

#include "gpt/layout/alignment.h"
#include "ops/operator_times.h"

namespace gpt::ops {
namespace {

constexpr at::ScalarType kMomentTypes[] = {at::kFloat, at::kBFloat16, at::kByte};

struct Weights {
  const char* name;
  bool has_values, has_copies;
  double bytes;  // bytes that an update moves for each, with float32 moments
};
constexpr Weights kWeights[] = {{"values", true, false, 28},
                                {"and their copies", true, true, 30},
                                {"copies alone", false, true, 22}};

void run(int64_t millions, const Weights& weights, int rounds) {
  const int64_t count = millions << 20, blocks = count / kParameterAlignment;
  const auto weight_type = weights.has_values ? at::kFloat : at::kBFloat16;
  const at::Tensor drawn = at::randn({count}), values = weights.has_values ? drawn : at::Tensor(),
                   gradients = at::randn({count}).to(weight_type), m = at::zeros({count}, weight_type),
                   v = at::zeros({count}, weight_type),
                   rounded = weights.has_copies ? drawn.to(at::kBFloat16) : at::Tensor(),
                   of_aten = weights.has_values ? values : rounded, decays = at::ones({blocks}, at::kByte),
                   rate = at::full({}, 1e-4), divisor = at::full({}, 2.0), no_inf = at::zeros({}), step = at::ones({});
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
      at::_fused_adamw_({of_aten}, {gradients}, {m}, {v}, {}, {step}, rate, 0.9, 0.99, 0.1, 1e-8, /*amsgrad=*/false,
                        /*maximize=*/false, /*grad_scale=*/{}, no_inf);
      if (weights.has_values && weights.has_copies) rounded.copy_(values);
    }));
  }
  const double mine = median(ours[0]), theirs = median(aten), bytes = static_cast<double>(count) * weights.bytes;
  fmt::print("{:4} Mi {:>16} | {:8.2f} {:8.2f} {:5.2f}x | {:5.1f} GB/s | {:8.2f} {:5.2f}x | {:8.2f} {:5.2f}x\n",
             millions, weights.name, mine, theirs, theirs / mine, bytes / mine / 1e6, median(ours[1]),
             median(ours[1]) / mine, median(ours[2]), median(ours[2]) / mine);
}

}  // namespace
}  // namespace gpt::ops

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 11;
  at::set_num_threads(argc > 2 ? std::stoi(argv[2]) : 1);
  fmt::print("{:24} | ms: ours, ATen's        | ours       | bfloat16 moments | 8-bit moments\n", "");
  for (const int64_t millions : {1, 32}) {
    for (const gpt::ops::Weights& weights : gpt::ops::kWeights) gpt::ops::run(millions, weights, rounds);
  }
}
