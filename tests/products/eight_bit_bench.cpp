// Times a linear layer's product in the forward pass: in 8 bits, with the rounding of its input, and in bfloat16 and float32. Medians of
// alternating runs; how often the rounded one is as fast as each is the median of the rounds' ratios. The rounding of the weight, once per
// update, is a column of its own.
//
//   eight_bit_bench [ROUNDS [THREADS]]     0 rounds: those of the smallest model, once, which shows that it runs
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "gpt/products/eight_bit_product.h"
#include "gpt/products/product.h"
#include "products/timing.h"

namespace gpt::ops {
namespace {

struct Layer {
  int64_t rows, in, out;
};

// Layers of nanoGPT's CPU model, whose micro-batches have 768 tokens, and of GPT-2 124M with 1,024 and 4,096.
constexpr Layer kLayers[] = {{768, 128, 384},   {768, 128, 128},  {768, 128, 512},   {768, 512, 128},
                             {1024, 768, 2304}, {1024, 768, 768}, {1024, 768, 3072}, {1024, 3072, 768},
                             {4096, 768, 2304}, {4096, 768, 768}, {4096, 768, 3072}, {4096, 3072, 768}};

void run(const Layer& layer, int rounds) {
  const auto [M, K, N] = layer;
  const at::Tensor x = at::randn({M, K}).to(at::kBFloat16), weight = at::randn({N, K}).to(at::kBFloat16),
                   bias = at::randn({N}).to(at::kBFloat16), wide_x = x.to(at::kFloat),
                   wide_weight = weight.to(at::kFloat), wide_bias = bias.to(at::kFloat);
  EightBitFactor factor = second_factor(weight, EightBitType::int8);
  const double flops = 2.0 * static_cast<double>(M * K * N);
  const int repetitions = static_cast<int>(std::max(1.0, 1e9 / flops));
  const std::vector<std::function<void()>> ways{
      [&] { (void)eight_bit_product(first_factor(x, EightBitType::int8), factor, bias, at::kBFloat16); },
      [&] { (void)product_with_bias(x, weight, bias, product_library(x)); },
      [&] { (void)product_with_bias(wide_x, wide_weight, wide_bias, product_library(wide_x)); },
      [&] { factor = second_factor(weight, EightBitType::int8); }};
  std::vector<std::vector<double>> times(ways.size()), ratios(ways.size());
  for (int round = -1; round < rounds; ++round) {
    std::vector<double> of_round;
    for (const auto& way : ways) {
      of_round.push_back(milliseconds([&] {
                           for (int i = 0; i < repetitions; ++i) way();
                         }) /
                         repetitions);
    }
    for (size_t i = 0; i < ways.size() && round >= 0; ++i)
      times[i].push_back(of_round[i]), ratios[i].push_back(of_round[i] / of_round[0]);
  }
  const auto speed = [&](size_t way) { return 1e-6 * flops / median(times[way]); };
  fmt::print("{:>20} {:8.3f} ms {:5.0f} GFLOP/s | {:5.0f} {:5.2f}x | {:5.0f} {:5.2f}x | {:6.3f} ms\n",
             fmt::format("{} x {} x {}", M, K, N), median(times[0]), speed(0), speed(1), median(ratios[1]), speed(2),
             median(ratios[2]), median(times[3]));
}

}  // namespace
}  // namespace gpt::ops

int main(int argc, char** argv) {
  const at::NoGradGuard no_gradients;
  at::set_num_threads(argc > 2 ? std::stoi(argv[2]) : 1);
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 9;
  fmt::print("{:>20} {:>28} | {:>12} | {:>12} | the weight\n", "rows x in x out", "int8", "bfloat16", "float32");
  for (const auto& layer : gpt::ops::kLayers)
    if (rounds > 0 || layer.in < 768) gpt::ops::run(layer, std::max(rounds, 1));
}
