#include "gpt/ops/cached_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "cached_attention_kernel.h"
#include "gpt/simd/cpu_capability.h"

namespace gpt::ops {
namespace cpu {

GPT_CPU_KERNEL(CachedAttentionKernel<float>, cached_attention_float32)
GPT_CPU_KERNEL(CachedAttentionKernel<c10::BFloat16>, cached_attention_bfloat16)

namespace {

constexpr int64_t kLeastTerms = 1 << 16;  // for a thread: below, waking it costs more than it saves

template <class T>
const CachedAttentionKernel<T>& cached_attention_kernel() {
  if constexpr (std::is_same_v<T, float>) {
    return best_cached_attention_float32();
  } else {
    return best_cached_attention_bfloat16();
  }
}

template <class T>
class CachedAttention {
 public:
  CachedAttention(const Heads& heads, const at::Tensor& keys, const at::Tensor& values,
                  std::span<const CachedTokens> texts, const at::Tensor& y, int64_t window)
      : heads_(heads),
        keys_(keys),
        values_(values),
        y_(y.mutable_data_ptr<T>()),
        window_(window > 0 ? window : keys.size(2)) {
    int64_t tasks = 0, sums = 0;
    for (const CachedTokens& text : texts) {
      const int64_t begin = std::max<int64_t>(0, text.past + 1 - window_);
      const int64_t parts = at::divup(text.past + text.count - begin, kCachedPart);
      texts_.push_back({text, begin, parts, tasks, sums});
      tasks += KV_ * parts;
      sums += text.count * H_ * parts * cached_sums(D_);
    }
    tasks_ = tasks;
    sums_ = at::empty({sums}, at::kFloat);
  }

  void run() {
    for (const Text& text : texts_) {
      put(heads_.k, keys_, text.tokens);
      put(heads_.v, values_, text.tokens);
    }
    const int64_t terms = 2 * kCachedPart * D_ * group_;
    at::parallel_for(0, tasks_, at::divup(kLeastTerms, terms), [&](int64_t begin, int64_t end) {
      const auto comes_later = [](int64_t task, const Text& text) { return task < text.first_task; };
      auto text = std::upper_bound(texts_.begin(), texts_.end(), begin, comes_later) - 1;
      for (int64_t task = begin; task < end; ++task) {
        if (task == text->first_task + KV_ * text->parts) ++text;
        attend(*text, task - text->first_task);
      }
    });
    // Few compared with the keys, but for those of many texts.
    const int64_t texts = std::ssize(texts_);
    at::parallel_for(0, texts, at::divup(kLeastTerms, H_ * D_), [&](int64_t begin, int64_t end) {
      for (int64_t text = begin; text < end; ++text) finish(texts_[text]);
    });
  }

 private:
  struct Text {
    CachedTokens tokens;
    int64_t begin;  // the first position that one of the tokens sees
    int64_t parts, first_task, first_sum;
  };

  void put(const at::Tensor& x, const at::Tensor& cache, const CachedTokens& text) const {
    const T* const from = x.const_data_ptr<T>() + text.first * x.stride(1);
    T* const to = cache.mutable_data_ptr<T>() + text.slot * cache.stride(0) + text.past * D_;
    for (int64_t token = 0; token < text.count; ++token)
      for (int64_t head = 0; head < KV_; ++head)
        std::copy_n(from + token * x.stride(1) + head * x.stride(2), D_, to + head * cache.stride(1) + token * D_);
  }

  float* sums_of(const Text& text, int64_t kv_head) const {
    return sums_.mutable_data_ptr<float>() + text.first_sum +
           kv_head * text.tokens.count * group_ * text.parts * cached_sums(D_);
  }

  void attend(const Text& text, int64_t task) const {
    const int64_t kv_head = task / text.parts, part = task % text.parts, begin = text.begin + part * kCachedPart;
    const at::Tensor& q = heads_.q;
    const auto of_head = [&](const at::Tensor& cache) {
      return cache.const_data_ptr<T>() + text.tokens.slot * cache.stride(0) + kv_head * cache.stride(1);
    };
    cached_attention_kernel<T>().attend(
        {.tokens = text.tokens.count,
         .group = group_,
         .D = D_,
         .queries = q.const_data_ptr<T>() + text.tokens.first * q.stride(1) + kv_head * group_ * q.stride(2),
         .token_stride = q.stride(1),
         .query_stride = q.stride(2),
         .keys = of_head(keys_),
         .values = of_head(values_),
         .past = text.tokens.past,
         .window = window_,
         .begin = begin,
         .end = std::min(begin + kCachedPart, text.tokens.past + text.tokens.count),
         .sums = sums_of(text, kv_head) + part * cached_sums(D_),
         .sums_stride = text.parts * cached_sums(D_)});
  }

  void finish(const Text& text) const {
    for (int64_t kv_head = 0; kv_head < KV_; ++kv_head) {
      const float* sums = sums_of(text, kv_head);
      for (int64_t token = 0; token < text.tokens.count; ++token) {
        T* y = y_ + ((text.tokens.first + token) * H_ + kv_head * group_) * D_;
        for (int64_t head = 0; head < group_; ++head, y += D_, sums += text.parts * cached_sums(D_))
          cached_attention_kernel<T>().finish(sums, text.parts, D_, y);
      }
    }
  }

  const Heads& heads_;
  const at::Tensor &keys_, &values_;
  T* const y_;
  const int64_t window_;
  const int64_t H_ = heads_.q.size(2), KV_ = heads_.k.size(2), D_ = heads_.q.size(3), group_ = H_ / KV_;
  std::vector<Text> texts_;
  int64_t tasks_ = 0;
  at::Tensor sums_;
};

}  // namespace
}  // namespace cpu

void cached_attention(const Heads& heads, const at::Tensor& keys, const at::Tensor& values,
                      std::span<const CachedTokens> texts, const at::Tensor& y, int64_t window) {
  const auto& [q, k, v] = heads;
  const at::ScalarType type = q.scalar_type();
  TORCH_CHECK(q.is_cpu() && (type == at::kFloat || type == at::kBFloat16), "cached_attention: takes float32 or ",
              "bfloat16 on a CPU, got ", type, " on ", q.device());
  for (const at::Tensor* x : {&k, &v, &keys, &values, &y})
    TORCH_CHECK(x->scalar_type() == type, "cached_attention: got ", x->scalar_type(), " beside queries of ", type);
  for (const at::Tensor* x : {&q, &k, &v})
    TORCH_CHECK(x->dim() == 4 && x->size(0) == 1 && x->size(3) == q.size(3) && x->stride(3) == 1,
                "cached_attention: heads must be (1, N, heads, D) with values side by side, got ", x->sizes());
  TORCH_CHECK(k.size(2) > 0 && q.size(2) % k.size(2) == 0 && v.size(2) == k.size(2), "cached_attention: ", q.size(2),
              " heads are not a multiple of ", k.size(2), " key/value heads");
  for (const at::Tensor* x : {&keys, &values})
    TORCH_CHECK(x->dim() == 4 && x->is_contiguous() && x->size(1) == k.size(2) && x->size(3) == q.size(3),
                "cached_attention: a cache must be (slots, ", k.size(2), ", capacity, ", q.size(3), "), got ",
                x->sizes());
  TORCH_CHECK(y.is_contiguous() && y.numel() == q.numel(), "cached_attention: y must have ", q.numel(),
              " values side by side, got ", y.sizes());
  for (const auto& [slot, past, count, first] : texts)
    TORCH_CHECK(slot >= 0 && slot < keys.size(0) && past >= 0 && count > 0 && past + count <= keys.size(2) &&
                    first >= 0 && first + count <= q.size(1),
                "cached_attention: ", count, " tokens of row ", first, " do not fit slot ", slot, " behind ", past);
  TORCH_CHECK(window >= 0, "cached_attention: a window has at least one position, got ", window);
  type == at::kFloat ? cpu::CachedAttention<float>(heads, keys, values, texts, y, window).run()
                     : cpu::CachedAttention<c10::BFloat16>(heads, keys, values, texts, y, window).run();
}

}  // namespace gpt::ops
