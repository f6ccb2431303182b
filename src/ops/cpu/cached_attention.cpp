#include "gpt/ops/cached_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
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

// Rows of new tokens x (1, N, KV, D) into the slot of a text.
template <class T>
void put(const at::Tensor& x, const at::Tensor& cache, const CachedTokens& text) {
  const int64_t heads = x.size(2), D = x.size(3);
  const T* const from = x.const_data_ptr<T>() + text.first * x.stride(1);
  T* const to = cache.mutable_data_ptr<T>() + text.slot * cache.stride(0) + text.past * D;
  for (int64_t token = 0; token < text.count; ++token)
    for (int64_t head = 0; head < heads; ++head)
      std::copy_n(from + token * x.stride(1) + head * x.stride(2), D, to + head * cache.stride(1) + token * D);
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
      put<T>(heads_.k, keys_, text.tokens);
      put<T>(heads_.v, values_, text.tokens);
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

template <class T>
class CachedChosenAttention {
 public:
  CachedChosenAttention(const Heads& heads, const at::Tensor& keys, const at::Tensor& values, const at::Tensor& means,
                        std::span<const CachedTokens> texts, const at::Tensor& y, const BlockChoice& blocks)
      : heads_(heads),
        keys_(keys),
        values_(values),
        means_(means),
        texts_(texts),
        y_(y.mutable_data_ptr<T>()),
        blocks_(blocks) {
    for (const CachedTokens& text : texts) add_tiles(text);
  }

  void run() {
    for (const CachedTokens& text : texts_) {
      put<T>(heads_.k, keys_, text);
      put<T>(heads_.v, values_, text);
    }
    at::parallel_for(0, std::ssize(texts_) * KV_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) complete(texts_[task / KV_], task % KV_);
    });
    const int64_t tasks = std::ssize(tiles_) * KV_, terms = 2 * blocks_.size * (blocks_.top + 1) * D_ * group_;
    at::parallel_for(0, tasks, at::divup(kLeastTerms, terms), [&](int64_t begin, int64_t end) {
      const Scratch scratch(*this);
      for (int64_t task = begin; task < end; ++task) attend(tiles_[task / KV_], task % KV_, scratch);
    });
  }

 private:
  // Queries of a text whose own block is the same: those of all heads of a group for one token, then for the next.
  struct Tile {
    const CachedTokens* text;
    int64_t first, count;  // of them
    int64_t own;           // their block
  };

  class Scratch {
   public:
    explicit Scratch(const CachedChosenAttention& of)
        : choice_(at::empty({cached_attention_kernel<T>().choice_floats(of.means_.size(2), of.blocks_.top, of.D_)},
                            at::kFloat)),
          chosen_(at::empty({kMostChoosing, of.blocks_.top}, at::kInt)),
          sums_(at::empty({(of.blocks_.top + 1) * at::divup(of.blocks_.size, kCachedPart), cached_sums(of.D_)},
                          at::kFloat)) {}
    float* choice() const { return choice_.mutable_data_ptr<float>(); }
    int32_t* chosen() const { return chosen_.mutable_data_ptr<int32_t>(); }
    float* sums() const { return sums_.mutable_data_ptr<float>(); }

   private:
    at::Tensor choice_, chosen_, sums_;
  };

  void add_tiles(const CachedTokens& text) {
    for (int64_t token = 0; token < text.count;) {
      const int64_t own = (text.past + token) / blocks_.size,
                    end = std::min(text.count, (own + 1) * blocks_.size - text.past);
      for (int64_t first = token * group_; first < end * group_; first += kMostChoosing)
        tiles_.push_back({&text, first, std::min(kMostChoosing, end * group_ - first), own});
      token = end;
    }
  }

  // The means of the blocks that the new tokens complete.
  void complete(const CachedTokens& text, int64_t kv_head) const {
    const int64_t end = (text.past + text.count) / blocks_.size;
    for (int64_t block = text.past / blocks_.size; block < end; ++block)
      cached_attention_kernel<T>().average(of_head(keys_, text, kv_head) + block * blocks_.size * D_, blocks_.size, D_,
                                           means_of(text, kv_head) + block * D_);
  }

  const T* of_head(const at::Tensor& cache, const CachedTokens& text, int64_t kv_head) const {
    return cache.const_data_ptr<T>() + text.slot * cache.stride(0) + kv_head * cache.stride(1);
  }
  float* means_of(const CachedTokens& text, int64_t kv_head) const {
    return means_.mutable_data_ptr<float>() + text.slot * means_.stride(0) + kv_head * means_.stride(1);
  }

  void attend(const Tile& tile, int64_t kv_head, const Scratch& scratch) const {
    const at::Tensor& q = heads_.q;
    const T* queries[kMostChoosing];
    for (int64_t i = 0; i < tile.count; ++i) {
      const auto [token, head] = std::pair((tile.first + i) / group_, (tile.first + i) % group_);
      queries[i] =
          q.const_data_ptr<T>() + (tile.text->first + token) * q.stride(1) + (kv_head * group_ + head) * q.stride(2);
    }
    int32_t* const chosen = scratch.chosen();
    cached_attention_kernel<T>().choose({.queries = queries,
                                         .count = tile.count,
                                         .D = D_,
                                         .means = means_of(*tile.text, kv_head),
                                         .blocks = tile.own,
                                         .top = blocks_.top},
                                        scratch.choice(), chosen);
    for (int64_t i = 0; i < tile.count; ++i) {
      const auto [token, head] = std::pair((tile.first + i) / group_, (tile.first + i) % group_);
      T* const y = y_ + ((tile.text->first + token) * H_ + kv_head * group_ + head) * D_;
      attend_to(tile, kv_head, queries[i], token, chosen + i * blocks_.top, scratch.sums(), y);
    }
  }

  // Attention of one query, whose chosen blocks come in the order of their positions, and then its own.
  void attend_to(const Tile& tile, int64_t kv_head, const T* query, int64_t token, int32_t* chosen, float* sums,
                 T* y) const {
    const int64_t position = tile.text->past + token;
    int64_t parts = 0;
    const auto add = [&](int64_t block) {
      const int64_t end = std::min((block + 1) * blocks_.size, position + 1);
      for (int64_t begin = block * blocks_.size; begin < end; begin += kCachedPart) {
        cached_attention_kernel<T>().attend({.tokens = 1,
                                             .group = 1,
                                             .D = D_,
                                             .queries = query,
                                             .token_stride = 0,
                                             .query_stride = 0,
                                             .keys = of_head(keys_, *tile.text, kv_head),
                                             .values = of_head(values_, *tile.text, kv_head),
                                             .past = position,
                                             .window = position + 1,
                                             .begin = begin,
                                             .end = std::min(begin + kCachedPart, end),
                                             .sums = sums + parts++ * cached_sums(D_),
                                             .sums_stride = 0});
      }
    };
    std::sort(chosen, chosen + blocks_.top);
    for (int64_t i = 0; i < blocks_.top; ++i)
      if (chosen[i] >= 0) add(chosen[i]);
    add(tile.own);
    cached_attention_kernel<T>().finish(sums, parts, D_, y);
  }

  const Heads& heads_;
  const at::Tensor &keys_, &values_, &means_;
  const std::span<const CachedTokens> texts_;
  T* const y_;
  const BlockChoice blocks_;
  const int64_t H_ = heads_.q.size(2), KV_ = heads_.k.size(2), D_ = heads_.q.size(3), group_ = H_ / KV_;
  std::vector<Tile> tiles_;
};

}  // namespace
}  // namespace cpu

namespace {

void check_cached(const Heads& heads, const at::Tensor& keys, const at::Tensor& values,
                  std::span<const CachedTokens> texts, const at::Tensor& y) {
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
}

}  // namespace

void cached_attention(const Heads& heads, const at::Tensor& keys, const at::Tensor& values,
                      std::span<const CachedTokens> texts, const at::Tensor& y, int64_t window) {
  check_cached(heads, keys, values, texts, y);
  TORCH_CHECK(window >= 0, "cached_attention: a window has at least one position, got ", window);
  heads.q.scalar_type() == at::kFloat
      ? cpu::CachedAttention<float>(heads, keys, values, texts, y, window).run()
      : cpu::CachedAttention<c10::BFloat16>(heads, keys, values, texts, y, window).run();
}

void cached_chosen_attention(const Heads& heads, const at::Tensor& keys, const at::Tensor& values,
                             const at::Tensor& means, std::span<const CachedTokens> texts, const at::Tensor& y,
                             const BlockChoice& blocks) {
  check_cached(heads, keys, values, texts, y);
  TORCH_CHECK(blocks.size > 0 && blocks.top > 0 && blocks.top <= kMostTopBlocks,
              "cached_chosen_attention: a query chooses 1 to ", kMostTopBlocks, " blocks, got ", blocks.top, " of ",
              blocks.size);
  const std::array sizes{keys.size(0), keys.size(1), keys.size(2) / blocks.size, keys.size(3)};
  TORCH_CHECK(means.sizes() == at::IntArrayRef(sizes) && means.is_contiguous() && means.scalar_type() == at::kFloat,
              "cached_chosen_attention: means must be ", at::IntArrayRef(sizes), " in float32, got ", means.sizes());
  using c10::BFloat16;
  heads.q.scalar_type() == at::kFloat
      ? cpu::CachedChosenAttention<float>(heads, keys, values, means, texts, y, blocks).run()
      : cpu::CachedChosenAttention<BFloat16>(heads, keys, values, means, texts, y, blocks).run();
}

}  // namespace gpt::ops
