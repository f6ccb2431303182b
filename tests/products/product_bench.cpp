// Times the three products of a linear layer, by kernels of our own and by ATen: medians of alternating runs.
//
//   product_bench [ROUNDS [THREADS]]     0 rounds: those of the smallest model, once, which shows that it runs
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gpt/products/product.h"
#include "products/timing.h"

namespace gpt::ops {
namespace {

struct Layer {
  int64_t rows, in, out;
};

// The layers of nanoGPT's CPU model and of GPT-2 124M with 256 and 1,024 tokens, and its head.
constexpr Layer kLayers[] = {{768, 128, 384},   {768, 128, 128},   {768, 128, 512},  {768, 512, 128},
                             {256, 768, 2304},  {256, 768, 768},   {256, 768, 3072}, {256, 3072, 768},
                             {256, 768, 50304}, {1024, 768, 2304}, {1024, 768, 768}, {1024, 768, 3072},
                             {1024, 3072, 768}};

void run(const Layer& layer, at::ScalarType type, int rounds) {
  using cpu::MatrixLibrary;
  const auto [M, K, N] = layer;
  const at::Tensor x = at::randn({M, K}).to(type), weight = at::randn({N, K}).to(type),
                   gradient = at::randn({M, N}).to(type);
  const std::pair<at::Tensor, at::Tensor> factors[] = {{x, weight.t()}, {gradient, weight}, {gradient.t(), x}};
  const double flops = 2.0 * static_cast<double>(M * K * N);
  const int repetitions = static_cast<int>(std::max(1.0, 1e9 / flops));
  std::string line;
  for (const auto& [a, b] : factors) {
    const at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
    std::vector<double> times[2];
    for (int round = -1; round < rounds; ++round) {
      for (const auto library : {MatrixLibrary::own, MatrixLibrary::aten}) {
        const double all = milliseconds([&] {
          for (int i = 0; i < repetitions; ++i) product_out(result, a, b, library);
        });
        if (round >= 0) times[library == MatrixLibrary::aten].push_back(all / repetitions);
      }
    }
    const double ours = median(times[0]), aten = median(times[1]);
    line +=
        fmt::format(" | {:8.3f} {:5.0f} {:5.0f} {:5.2f}x", ours, 1e-6 * flops / ours, 1e-6 * flops / aten, aten / ours);
  }
  fmt::print("{:>20} {:8}{}\n", fmt::format("{} x {} x {}", M, K, N), c10::toString(type), line);
}

}  // namespace
}  // namespace gpt::ops

int main(int argc, char** argv) {
  at::set_num_threads(argc > 2 ? std::stoi(argv[2]) : 1);
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 9;
  fmt::print("{:>29} | the result, its factors' gradients: our ms, GFLOP/s, ATen's\n", "rows x in x out");
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    for (const auto& layer : gpt::ops::kLayers) {
      if (rounds > 0 || layer.in < 768) gpt::ops::run(layer, type, std::max(rounds, 1));
    }
  }
}
