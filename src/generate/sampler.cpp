#include "gpt/generate/sampler.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpt {
namespace {

constexpr double kRemoved = -std::numeric_limits<double>::infinity();

// Tokens below the k-th score; ties with it stay.
at::Tensor outside_top_k(const at::Tensor& scores, int64_t k) {
  const at::Tensor kth = std::get<0>(at::topk(scores, k, 1)).narrow(1, k - 1, 1);  // (B, 1)
  return scores.lt(kth);
}

// Tokens of the low end that together hold no more than 1 - p. Summed upwards, small ones first, so that a long tail
// keeps its weight in float32.
at::Tensor outside_top_p(const at::Tensor& scores, double p) {
  const auto [ascending, order] = at::sort(scores, 1);
  at::Tensor outside = at::cumsum(at::softmax(ascending, 1), 1).le_(1.0 - p).to(at::kBool);
  outside.narrow(1, outside.size(1) - 1, 1).fill_(false);  // the likeliest stays, however small p is
  return at::zeros_like(outside).scatter_(1, order, outside);
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
    ids = p.div(at::empty_like(p).exponential_(1.0, generator)).argmax(1, true);
  }
  return at::where(logits.amax(1, true).isfinite(), ids, -1);
}

}  // namespace gpt
