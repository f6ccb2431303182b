#include "gpt/generate/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace gpt::generate {
namespace {

constexpr double kRemoved = -std::numeric_limits<double>::infinity();

// On a CPU kernels for one row take the place of LibTorch's, which take as long as a tenth of a small model. `values` (B, V).
template <class Work>
void for_each_row(const at::Tensor& values, const Work& work) {
  const at::Tensor rows = values.contiguous();
  const int64_t V = rows.size(1);
  for (int64_t row = 0; row < rows.size(0); ++row)
    work(row, std::span(rows.const_data_ptr<float>() + row * V, static_cast<size_t>(V)));
}

at::Tensor kth_on_cpu(const at::Tensor& scores, int64_t k) {
  at::Tensor kth = at::empty({scores.size(0), 1}, scores.options());
  std::vector<float> largest(static_cast<size_t>(k));
  for_each_row(scores, [&](int64_t row, std::span<const float> of_row) {
    std::partial_sort_copy(of_row.begin(), of_row.end(), largest.begin(), largest.end(), std::greater<>());
    kth.mutable_data_ptr<float>()[row] = largest.back();
  });
  return kth;
}

// As outside_top_p(). Those that have less than an equal share of 1 - p hold no more than that together, so the few others are sorted.
at::Tensor outside_top_p_on_cpu(const at::Tensor& scores, double p) {
  const at::Tensor probabilities = at::softmax(scores, 1),
                   outside = at::ones(scores.sizes(), scores.options().dtype(at::kBool));
  constexpr double kLess = 0.99;  // so that rounding leaves the likeliest one out nowhere
  const auto share = static_cast<float>(kLess * (1.0 - p) / static_cast<double>(scores.size(1)));
  for_each_row(probabilities, [&](int64_t row, std::span<const float> of_row) {
    std::vector<std::pair<float, int64_t>> others;
    double sum = 0;
    for (int64_t id = 0; id < std::ssize(of_row); ++id)
      of_row[id] < share ? (void)(sum += of_row[id]) : (void)others.emplace_back(of_row[id], id);
    std::sort(others.begin(), others.end());
    bool* const of_ids = outside.mutable_data_ptr<bool>() + row * std::ssize(of_row);
    for (size_t i = 0; i < others.size(); ++i) {
      sum += others[i].first;
      if (sum > 1.0 - p || i + 1 == others.size()) of_ids[others[i].second] = false;
    }
  });
  return outside;
}

// Tokens below the k-th score; ties with it stay.
at::Tensor outside_top_k(const at::Tensor& scores, int64_t k) {
  if (scores.is_cpu()) return scores.lt(kth_on_cpu(scores, k));
  const at::Tensor kth = std::get<0>(at::topk(scores, k, 1)).narrow(1, k - 1, 1);  // (B, 1)
  return scores.lt(kth);
}

// Tokens of the low end that together hold no more than 1 - p. Summed upwards, small ones first, so that a long tail
// keeps its weight in float32.
at::Tensor outside_top_p(const at::Tensor& scores, double p) {
  if (scores.is_cpu()) return outside_top_p_on_cpu(scores, p);
  const auto [ascending, order] = at::sort(scores, 1);
  at::Tensor outside = at::cumsum(at::softmax(ascending, 1), 1).le_(1.0 - p).to(at::kBool);
  outside.narrow(1, outside.size(1) - 1, 1).fill_(false);  // the likeliest stays, however small p is
  return at::zeros_like(outside).scatter_(1, order, outside);
}

// Numbers of a generator, without a call of a library for each.
class Numbers {
 public:
  explicit Numbers(at::CPUGeneratorImpl& generator) : generator_(generator), engine_(generator.engine()) {}
  ~Numbers() { generator_.set_engine(engine_); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  double uniform() {
    at::uniform_real_distribution<double> zero_to_one(0.0, 1.0);
    return zero_to_one(this);
  }
  uint32_t random() { return engine_(); }
  uint64_t random64() {
    const uint64_t upper = engine_();
    return upper << 32 | engine_();
  }

 private:
  at::CPUGeneratorImpl& generator_;
  at::mt19937 engine_;
};

// The winners of the race in sample(), with the numbers that exponential_() draws. It takes no logarithm for those that have lost already:
// -log(1 - u) is at least u.
at::Tensor race_on_cpu(const at::Tensor& probabilities, at::Generator& generator) {
  const at::Tensor winners = at::empty({probabilities.size(0), 1}, at::kLong);
  auto* const random = at::check_generator<at::CPUGeneratorImpl>(generator);
  const std::lock_guard lock(random->mutex_);
  Numbers numbers(*random);
  for_each_row(probabilities, [&](int64_t row, std::span<const float> of_row) {
    constexpr double kRounding = 1 - 1e-6;
    float best = -1;
    int64_t winner = 0;
    for (int64_t id = 0; id < std::ssize(of_row); ++id) {
      const double u = numbers.uniform();
      if (of_row[id] < best * u * kRounding) continue;
      const float pace = of_row[id] / static_cast<float>(-std::log1p(-u));
      if (pace > best) best = pace, winner = id;
    }
    winners.mutable_data_ptr<int64_t>()[row] = winner;
  });
  return winners;
}

}  // namespace

at::Tensor penalize_repetition(const at::Tensor& logits, const at::Tensor& context, double penalty) {
  TORCH_CHECK(logits.dim() == 2 && context.dim() == 2 && context.size(0) == logits.size(0),
              "penalize_repetition: logits must be (B, V) and context (B, T), got ", logits.sizes(), " and ",
              context.sizes());
  const at::Tensor scores = logits.to(at::kFloat);
  const at::Tensor seen = at::gather(scores, 1, context);  // (B, T)
  return at::scatter(scores, 1, context, at::where(seen.lt(0), seen.mul(penalty), seen.div(penalty)));
}

at::Tensor filtered_probabilities(const at::Tensor& logits, const SamplingConfig& config) {
  TORCH_CHECK(logits.dim() == 2, "filtered_probabilities: logits must be (B, V), got ", logits.sizes());
  if (config.temperature == 0) {
    return at::zeros_like(logits, logits.options().dtype(at::kFloat)).scatter_(1, logits.argmax(1, true), 1.0);
  }
  // Against the largest logit first: a temperature near 0 then drives the others to -inf, never to NaN.
  const double temperature = std::max<double>(config.temperature, std::numeric_limits<float>::min());
  at::Tensor scores = logits.to(at::kFloat).sub(logits.amax(1, true)).div_(temperature);
  if (config.top_k > 0 && config.top_k < scores.size(1)) {
    scores.masked_fill_(outside_top_k(scores, config.top_k), kRemoved);
  }
  if (config.top_p < 1) scores.masked_fill_(outside_top_p(scores, config.top_p), kRemoved);
  if (config.min_p > 0) scores.masked_fill_(scores.lt(std::log(config.min_p)), kRemoved);  // the largest score is 0
  return at::softmax(scores, 1);
}

at::Tensor sample(const at::Tensor& logits, const SamplingConfig& config, at::Generator& generator) {
  at::Tensor ids;
  if (config.temperature == 0) {
    ids = logits.argmax(1, true);
  } else {
    // An exponential race: the first of clocks with rates p rings at token i with probability p_i. Unlike a multinomial
    // draw it needs no look at the sum, hence no wait for the device.
    const at::Tensor p = filtered_probabilities(logits, config);
    ids =
        p.is_cpu() ? race_on_cpu(p, generator) : p.div(at::empty_like(p).exponential_(1.0, generator)).argmax(1, true);
  }
  return at::where(logits.amax(1, true).isfinite(), ids, -1);
}

}  // namespace gpt::generate
