// How long attention with its backward pass takes where queries choose blocks of keys, beside that to all keys: CPU time of one
// thread, in alternating rounds. Beside a ratio of times stands the share of the scores that is not computed.
//
//   usage: chosen_attention_bench ROUNDS [LENGTH...]

#include <ATen/Parallel.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/core/statistics.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/ops/attention.h"
#include "products/timing.h"

namespace {

using gpt::ops::AttentionSpec;

constexpr int64_t kHeads = 2, kHeadDim = 64;

struct Milliseconds {
  double forward, both;
};

Milliseconds run(const at::Tensor& qkv, const AttentionSpec& spec, const gpt::ops::RotaryTables& rotary) {
  const at::Tensor leaf = qkv.detach().requires_grad_();
  const double begin = gpt::ops::cpu_milliseconds();
  const at::Tensor y = gpt::ops::attention(leaf, spec, rotary);
  const double between = gpt::ops::cpu_milliseconds();
  y.backward(at::ones_like(y));
  return {between - begin, gpt::ops::cpu_milliseconds() - begin};
}

void measure(int64_t length, at::ScalarType type, const gpt::ops::BlockChoice& blocks, int64_t rounds) {
  const at::Tensor qkv = at::randn({1, length, 3 * kHeads * kHeadDim}).to(type);
  const auto rotary = gpt::ops::rotary_tables(length, kHeadDim, 10000.0, at::kCPU);
  const AttentionSpec full{.heads = kHeads, .kv_heads = kHeads};
  AttentionSpec chosen = full;
  chosen.blocks = blocks;
  std::vector<double> of_full, of_chosen, ratios, forward_ratios;
  for (int64_t round = 0; round <= rounds; ++round) {
    const Milliseconds all = run(qkv, full, rotary), some = run(qkv, chosen, rotary);
    if (round == 0 && rounds > 0) continue;  // memory is allocated
    of_full.push_back(all.both), of_chosen.push_back(some.both);
    ratios.push_back(some.both / all.both), forward_ratios.push_back(some.forward / all.forward);
  }
  const double skipped = 1 - gpt::chosen_share(length, blocks.size, blocks.top), saved = 1 - gpt::median(ratios);
  fmt::print("| {} | {} x {} | {} | {:.2f} | {:.2f} | {:.2f}x | {:.2f}x | {:.0f} % | {:.0f} % | {:.2f} |\n", length,
             blocks.top, blocks.size, c10::toString(type), gpt::median(of_full), gpt::median(of_chosen),
             1 / gpt::median(forward_ratios), 1 / gpt::median(ratios), 100 * skipped, 100 * saved,
             skipped > 0 ? saved / skipped : 0);
}

}  // namespace

int main(int count, char** arguments) {
  const int64_t rounds = count > 1 ? std::atoll(arguments[1]) : 5;
  std::vector<int64_t> lengths;
  for (int i = 2; i < count; ++i) lengths.push_back(std::atoll(arguments[i]));
  if (lengths.empty()) lengths = rounds > 0 ? std::vector<int64_t>{1024, 2048, 4096, 8192} : std::vector<int64_t>{400};
  gpt::device::use_cpu_allocator();
  at::set_num_threads(1);
  fmt::print(
      "| positions | blocks | type | all, ms | chosen, ms | forward gain | gain | scores skipped | time saved | saved / skipped |\n");
  fmt::print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const int64_t length : lengths)
    for (const auto type : {at::kFloat, at::kBFloat16}) measure(length, type, {.size = 64, .top = 4}, rounds);
}
