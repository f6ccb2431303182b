// Attention to a cache, for texts of several lengths at once, against float64.
#include "gpt/ops/cached_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gpt/simd/cpu_capability.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct Form {
  int64_t H, KV, D;
};
constexpr Form kForms[] = {{4, 4, 64}, {6, 2, 64}, {4, 1, 40}, {2, 2, 7}, {3, 3, 200}};
constexpr int64_t kSlots = 7, kCapacity = 300;

// Slots in no order, and lengths about the edges of what a task takes.
const std::vector<CachedTokens> kTexts = {{.slot = 5, .past = 0, .count = 1, .first = 0},
                                          {.slot = 0, .past = 127, .count = 1, .first = 1},
                                          {.slot = 2, .past = 128, .count = 1, .first = 2},
                                          {.slot = 3, .past = 10, .count = 8, .first = 3},
                                          {.slot = 6, .past = 125, .count = 5, .first = 11},
                                          {.slot = 1, .past = 299, .count = 1, .first = 16},
                                          {.slot = 4, .past = 0, .count = 3, .first = 17}};
constexpr int64_t kTokens = 20;

struct Cached {
  at::Tensor qkv, keys, values, y;
  Heads heads;

  Cached(const Form& form, at::ScalarType type) {
    const auto& [H, KV, D] = form;
    qkv = at::randn({1, kTokens, H + 2 * KV, D}).mul_(2).to(type);
    heads = {qkv.narrow(2, 0, H), qkv.narrow(2, H, KV), qkv.narrow(2, H + KV, KV)};
    // What lies behind a text must not matter.
    keys = at::full_like(at::empty({kSlots, KV, kCapacity, D}).to(type), std::numeric_limits<float>::quiet_NaN());
    values = at::full_like(keys, std::numeric_limits<float>::quiet_NaN());
    for (const CachedTokens& text : kTexts) {
      for (const at::Tensor& cache : {keys, values}) {
        const at::Tensor past = cache[text.slot].narrow(1, 0, text.past);
        past.copy_(at::randn(past.sizes()).mul_(2));
      }
    }
    y = at::empty({1, kTokens, H * D}, qkv.options());
  }
};

// (count, H, D) float64
at::Tensor reference(const Cached& cached, const CachedTokens& text, int64_t window) {
  const auto of_text = [&](const at::Tensor& x) {
    return x[0].narrow(0, text.first, text.count).transpose(0, 1).to(at::kDouble);  // (heads, count, D)
  };
  const auto all = [&](const at::Tensor& cache, const at::Tensor& x) {
    return at::cat({cache[text.slot].narrow(1, 0, text.past).to(at::kDouble), of_text(x)}, 1)
        .repeat_interleave(cached.heads.q.size(2) / x.size(2), 0);  // (H, past + count, D)
  };
  const at::Tensor q = of_text(cached.heads.q), k = all(cached.keys, cached.heads.k),
                   v = all(cached.values, cached.heads.v);
  at::Tensor sees = at::ones({text.count, text.past + text.count}, at::kBool).tril(text.past);
  if (window > 0) sees = sees.triu(text.past - window + 1);
  const at::Tensor scores = (q.matmul(k.transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(2))))
                                .masked_fill(sees.logical_not(), -std::numeric_limits<double>::infinity());
  return at::softmax(scores, 2).matmul(v).transpose(0, 1);
}

// What no token sees must not matter, so that it need not be read.
void hide_past(const Cached& cached, int64_t window) {
  for (const CachedTokens& text : kTexts) {
    const int64_t hidden = std::max<int64_t>(0, text.past + 1 - window);
    for (const at::Tensor& cache : {cached.keys, cached.values})
      cache[text.slot].narrow(1, 0, hidden).fill_(std::numeric_limits<float>::quiet_NaN());
  }
}

class CachedAttention : public testing::TestWithParam<int64_t> {};  // a window

TEST_P(CachedAttention, IsThatOfFloat64ForTextsOfEveryLength) {
  at::manual_seed(1);
  const int64_t window = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Form& form : kForms) {
      const Cached cached(form, type);
      std::vector<at::Tensor> expected;
      for (const CachedTokens& text : kTexts) expected.push_back(reference(cached, text, window));
      if (window > 0) hide_past(cached, window);
      cached_attention(cached.heads, cached.keys, cached.values, kTexts, cached.y, window);
      for (size_t i = 0; i < kTexts.size(); ++i) {
        const at::Tensor found = cached.y[0].narrow(0, kTexts[i].first, kTexts[i].count).view(expected[i].sizes());
        // A weight's relative error is its score's absolute one: scores are at most about 40, sums of D roundings.
        const double magnitude = expected[i].abs().max().item<double>();
        const double tolerance = test::tolerance(at::kFloat, form.D, 40 * 6) +
                                 (type == at::kFloat ? 0 : test::tolerance(type, 1, magnitude));
        EXPECT_LE((found.to(at::kDouble) - expected[i]).abs().max().item<double>(), tolerance)
            << c10::toString(type) << ", " << form.H << " heads of " << form.D << ", text " << i;
        const at::Tensor put = cached.keys[kTexts[i].slot].narrow(1, kTexts[i].past, kTexts[i].count);
        EXPECT_TRUE(put.equal(cached.heads.k[0].narrow(0, kTexts[i].first, kTexts[i].count).transpose(0, 1)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, CachedAttention, testing::Values(0, 1, 3, 100, 128, 130, 299, kCapacity));

TEST_P(CachedAttention, IsTheSameForEveryNumberOfThreads) {
  at::manual_seed(2);
  const Cached cached({6, 2, 64}, at::kFloat);
  const int64_t window = GetParam();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  cached_attention(cached.heads, cached.keys, cached.values, kTexts, cached.y, window);
  const at::Tensor one = cached.y.clone();
  at::set_num_threads(3);
  cached_attention(cached.heads, cached.keys, cached.values, kTexts, cached.y, window);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.equal(cached.y));
}

TEST(CachedAttentionTexts, AreRefusedWhereTheyDoNotFit) {
  const Cached cached({2, 1, 8}, at::kFloat);
  const auto attend = [&](const CachedTokens& text) {
    cached_attention(cached.heads, cached.keys, cached.values, {&text, 1}, cached.y);
  };
  EXPECT_THROW(attend({.slot = kSlots, .past = 0, .count = 1, .first = 0}), c10::Error);
  EXPECT_THROW(attend({.slot = 0, .past = kCapacity, .count = 1, .first = 0}), c10::Error);
  EXPECT_THROW(attend({.slot = 0, .past = 0, .count = 2, .first = kTokens - 1}), c10::Error);
  EXPECT_THROW(cached_attention(cached.heads, cached.keys.to(at::kBFloat16), cached.values, kTexts, cached.y),
               c10::Error);
}

}  // namespace
}  // namespace gpt::ops
