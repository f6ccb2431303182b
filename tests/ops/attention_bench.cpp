// Times ops::attention against ATen's scaled_dot_product_attention on one thread of the CPU: CPU time, medians of alternating
// runs. Both take the packed product of queries, keys and values and return its gradient.
//
//   attention_bench [ROUNDS [LINE]]     LINE: the number of one line, to run only that
//   attention_bench windows [ROUNDS]    windows against full attention instead, both ours, for growing sequences: which share of the
//                                       scores a window skips, which share of the time it saves, and the ratio of both
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "gpt/config/model_config.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/ops/attention.h"
#include "ops/operator_times.h"

namespace gpt::ops {
namespace {

struct Size {
  int64_t B, H, T, D;
  double dropout = 0.0;
};

const Size kSizes[] = {{12, 4, 64, 32},  {16, 4, 128, 32}, {4, 12, 64, 64},      {4, 6, 256, 64},     {1, 12, 1024, 64},
                       {1, 4, 2048, 64}, {1, 4, 512, 128}, {12, 4, 64, 32, 0.1}, {4, 6, 256, 64, 0.1}};

at::Tensor with_aten(const at::Tensor& qkv, const Size& size) {
  const auto parts = qkv.view({size.B, size.T, 3, size.H, size.D}).unbind(2);
  return at::scaled_dot_product_attention(parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2),
                                          {}, size.dropout, /*is_causal=*/true)
      .transpose(1, 2)
      .reshape({size.B, size.T, size.H * size.D});
}

void run(const Size& size, at::ScalarType type, int rounds) {
  const at::Tensor qkv = at::randn({size.B, size.T, 3 * size.H * size.D}).to(type);
  const at::Tensor upstream = at::randn({size.B, size.T, size.H * size.D}).to(type);
  OperatorTimes ours, aten;
  for (int round = 0; round < rounds; ++round) {
    ours.measure([&](const at::Tensor& x) { return attention(x, {size.H, size.H, {size.dropout}}); }, qkv, upstream);
    aten.measure([&](const at::Tensor& x) { return with_aten(x, size); }, qkv, upstream);
  }
  const double forward = median(ours.forward), both = median(ours.both), their_forward = median(aten.forward),
               their_both = median(aten.both);
  fmt::print("{:>24} {:8} {:4} | {:8.3f} {:8.3f} {:5.2f}x | {:8.3f} {:8.3f} {:5.2f}x\n",
             fmt::format("{} x {} x {} x {}", size.B, size.H, size.T, size.D), c10::toString(type), size.dropout,
             forward, their_forward, their_forward / forward, both, their_both, their_both / both);
  std::fflush(stdout);
}

// One sequence of a few heads.
void run_window(int64_t T, int64_t window, at::ScalarType type, int rounds) {
  constexpr int64_t kHeads = 2, kWidth = 64;
  const at::Tensor qkv = at::randn({1, T, 3 * kHeads * kWidth}).to(type);
  const at::Tensor upstream = at::randn({1, T, kHeads * kWidth}).to(type);
  const auto with = [&](int64_t of_layer) {
    return [=](const at::Tensor& x) { return attention(x, {.heads = kHeads, .kv_heads = kHeads, .window = of_layer}); };
  };
  OperatorTimes full, windowed;
  for (int round = 0; round < rounds; ++round) {
    full.measure(with(0), qkv, upstream);
    windowed.measure(with(window), qkv, upstream);
  }
  const double skipped = 1 - visible_share(T, window), saved = 1 - median(windowed.both) / median(full.both);
  fmt::print("{:>6} {:>7} {:8} | {:9.3f} {:9.3f} {:6.2f}x | {:9.3f} {:9.3f} {:6.2f}x | {:5.0f}% {:5.0f}% {:5.2f}\n", T,
             window, c10::toString(type), median(full.forward), median(windowed.forward),
             median(full.forward) / median(windowed.forward), median(full.both), median(windowed.both),
             median(full.both) / median(windowed.both), 100 * skipped, 100 * saved, saved / skipped);
  std::fflush(stdout);
}

void run_windows(int rounds) {
  fmt::print(
      "{:>6} {:>7} {:8} | forward, ms: full, windowed    | with backward: full, windowed  | skipped, saved, ratio\n",
      "T", "window", "type");
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t T : {256, 512, 1024, 2048, 4096, 8192}) {
      for (const int64_t window : {64, 128, 256, 512, 1024}) {
        if (window < T) run_window(T, window, type, rounds);
      }
    }
  }
}

}  // namespace
}  // namespace gpt::ops

int main(int argc, char** argv) {
  gpt::use_cpu_allocator();  // as gpt-train
  at::set_num_threads(1);
  if (argc > 1 && argv[1] == std::string_view("windows")) {
    gpt::ops::run_windows(argc > 2 ? std::stoi(argv[2]) : 7);
    return 0;
  }
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 31, only = argc > 2 ? std::stoi(argv[2]) : 0;
  fmt::print("{:>24} {:8} {:4} | forward, ms: ours, ATen    | with backward: ours, ATen\n", "B x H x T x D", "type",
             "drop");
  int line = 0;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto& size : gpt::ops::kSizes) {
      if (++line == only || only == 0) gpt::ops::run(size, type, rounds);
    }
  }
}
