// Times a token after 64 others, and a prompt of 512, with weights of 32, 16, 8 and 4 bits: GPT-2 124M with random weights, in alternating
// runs. Beside each token stands the time of reading as many bytes once, measured in the same round, and the share of it: the median of the
// rounds' ratios.
//
//   quantized_bench [ROUNDS [THREADS]]     0 rounds: a small model, once, which shows that it runs
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpt/model/quantized_model.h"
#include "gpt/ops/narrow_weights.h"
#include "products/timing.h"
#include "support/cached_batch.h"

namespace gpt::ops {
namespace {

constexpr int64_t kPast = 64;

struct Variant {
  std::string name;
  std::unique_ptr<model::GPT> model;
  at::Tensor bytes;  // as many as its weights
  std::vector<double> token = {}, reading = {}, prompt = {};
};

ModelConfig config_of(bool is_small) {
  ModelConfig config;
  config.vocab_size = 50257, config.norm = Norm::layernorm, config.mlp = Mlp::gelu;
  config.position = Position::learned, config.bias = true, config.dropout = 0, config.block_size = 1024;
  config.n_layer = 12, config.n_head = 12, config.n_embd = 768;
  if (is_small) config.n_layer = 1, config.n_head = 2, config.n_embd = 64, config.vocab_size = 100;
  return config;
}

// All bytes by all threads, as fast as vectors can.
void read_once(const at::Tensor& bytes) {
  const auto* from = bytes.const_data_ptr<int64_t>();
  at::parallel_for(0, bytes.numel() / 8, 1 << 15, [&](int64_t begin, int64_t end) {
    using Numbers = int64_t __attribute__((vector_size(64)));
    Numbers sums[4] = {};
    for (int64_t i = begin * 8; i + 32 <= end * 8; i += 32) {
      for (int k = 0; k < 4; ++k) {
        Numbers next;
        std::memcpy(&next, from + i + 8 * k, sizeof next);
        sums[k] ^= next;
      }
    }
    const Numbers sum = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
    asm volatile("" : : "m"(sum));
  });
}

// Milliseconds of `work`: with one thread its own time, which other programs hardly change.
template <class Work>
double time_of(const Work& work) {
  if (at::get_num_threads() > 1) return milliseconds(work);
  const double begin = cpu_milliseconds();
  work();
  return cpu_milliseconds() - begin;
}

void measure(Variant& variant, int64_t prompt) {
  const c10::InferenceMode inference;
  const model::GPT& model = *variant.model;
  model::KvCache cache = model.make_cache(1, model.config().block_size, at::kFloat);
  const at::Tensor ids = at::randint(0, *model.config().vocab_size, {1, prompt}, at::kLong);
  variant.prompt.push_back(time_of([&] { (void)test::forward_cached(model, ids, cache); }));
  cache.lengths = {kPast};
  for (int i = 0; i < 5; ++i) {
    variant.token.push_back(time_of([&] { (void)test::forward_cached(model, ids.narrow(1, i, 1), cache); }));
    variant.reading.push_back(time_of([&] { read_once(variant.bytes); }));
  }
}

std::vector<Variant> variants(bool is_small) {
  const ModelConfig config = config_of(is_small);
  std::vector<Variant> all;
  const auto add = [&](const std::string& name, std::unique_ptr<model::GPT> model) {
    const int64_t bytes = model::weight_bytes(*model);
    all.push_back({name, std::move(model), at::zeros({bytes / 8}, at::kLong)});
  };
  auto drawn = std::make_unique<model::GPT>(config, at::kCPU, 1);
  const parameters::NamedTensors values = drawn->parameters().values();
  auto narrow = std::make_unique<model::GPT>(config, at::kCPU, values,
                                             parameters::ParameterTypes{.compute = at::kBFloat16, .has_master = false});
  narrow->set_operators(narrow_weight_operators(narrow->parameters()));
  for (const parameters::QuantizedType type : {parameters::QuantizedType::int8, parameters::QuantizedType::int4})
    add(std::string(parameters::name_of(type)), model::quantized_gpt(config, model::quantize(config, values, type)));
  add("bfloat16", std::move(narrow));
  add("float32", std::move(drawn));
  return all;
}

void run(int rounds, bool is_small) {
  std::vector<Variant> all = variants(is_small);
  for (int round = 0; round < rounds; ++round)
    for (Variant& variant : all) measure(variant, is_small ? 80 : 512);
  fmt::print("{:>10} {:>9} {:>12} {:>12} {:>14} {:>10} {:>8}\n", "weights", "MB", "ms a token", "ms to read",
             "read / token", "ms prompt", "float32");
  for (const Variant& variant : all) {
    std::vector<double> shares, ratios;
    for (size_t i = 0; i < variant.token.size(); ++i) shares.push_back(variant.reading[i] / variant.token[i]);
    for (size_t i = 0; i < variant.prompt.size(); ++i) ratios.push_back(all.back().prompt[i] / variant.prompt[i]);
    fmt::print("{:>10} {:9.1f} {:12.2f} {:12.2f} {:13.0f}% {:10.1f} {:7.2f}x\n", variant.name,
               1e-6 * static_cast<double>(variant.bytes.nbytes()), median(variant.token), median(variant.reading),
               100 * median(shares), median(variant.prompt), median(ratios));
  }
}

}  // namespace
}  // namespace gpt::ops

int main(int argc, char** argv) {
  at::set_num_threads(argc > 2 ? std::stoi(argv[2]) : 1);
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 9;
  gpt::ops::run(std::max(rounds, 1), rounds == 0);
}
