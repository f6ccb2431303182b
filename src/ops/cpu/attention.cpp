#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "attention_kernel.h"
#include "gpt/simd/cpu_capability.h"
#include "ops/kernels.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(AttentionKernels<float>, attention_float32)
GPT_BFLOAT16_KERNEL(AttentionKernels<c10::BFloat16>, attention_bfloat16)
GPT_CPU_KERNEL(AttentionKernels<float>, chosen_attention_float32)
GPT_BFLOAT16_KERNEL(AttentionKernels<c10::BFloat16>, chosen_attention_bfloat16)

namespace {

template <class T>
const AttentionKernels<T>& kernels(const AttentionShape& shape) {
  if constexpr (std::is_same_v<T, float>) {
    return shape.top_blocks > 0 ? best_chosen_attention_float32() : best_attention_float32();
  } else {
    return shape.top_blocks > 0 ? best_chosen_attention_bfloat16() : best_attention_bfloat16();
  }
}

// The backward pass adds up what blocks of keys contribute to the queries, so that it is divided by the shape alone: the sums
// are then the same for every number of threads.
constexpr int64_t kBackwardTasks = 16;

// Where there are fewer heads than `tasks`, each is done in several parts.
int64_t parts(const AttentionShape& shape, int64_t tasks) {
  return std::clamp<int64_t>(at::divup(tasks, shape.B * shape.KV), 1, shape.blocks());
}

// Calls work(task, scratch) for each part of each batch entry and key/value head.
template <class Work>
void for_each_task(const AttentionShape& shape, int64_t parts, int64_t scratch_floats, const Work& work) {
  const int64_t count = shape.B * shape.KV * parts, threads = std::min<int64_t>(at::get_num_threads(), count);
  const at::Tensor scratch = at::empty({threads, scratch_floats}, at::kFloat);
  auto* memory = scratch.data_ptr<float>();
  at::parallel_for(0, count, at::divup(count, threads), [&](int64_t begin, int64_t end) {
    float* own = memory + at::get_thread_num() * scratch_floats;
    for (int64_t i = begin; i < end; ++i) {
      work(AttentionTask{i / parts / shape.KV, i / parts % shape.KV, i % parts, parts}, own);
    }
  });
}

template <class T>
void forward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& output, const at::Tensor& log_sum) {
  const AttentionKernels<T>& kernel = kernels<T>(shape);
  const T* from = qkv.const_data_ptr<T>();
  T* to = output.data_ptr<T>();
  auto* log_sums = log_sum.data_ptr<float>();
  // Blocks of queries do not depend on each other: as many parts as keep the threads busy.
  const int64_t tasks = at::get_num_threads() == 1 ? 1 : 4 * at::get_num_threads();
  for_each_task(shape, parts(shape, tasks), kernel.forward_scratch(shape),
                [&](const AttentionTask& task, float* scratch) {
                  kernel.forward(shape, task, from, to, log_sums, scratch);
                });
}

template <class T>
void backward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& output, const at::Tensor& log_sum,
              const at::Tensor& output_gradient, const at::Tensor& gradient) {
  const AttentionKernels<T>& kernel = kernels<T>(shape);
  const T *from = qkv.const_data_ptr<T>(), *result = output.const_data_ptr<T>(),
          *upstream = output_gradient.const_data_ptr<T>();
  const auto* log_sums = log_sum.const_data_ptr<float>();
  T* to = gradient.data_ptr<T>();
  const int64_t parts = cpu::parts(shape, kBackwardTasks), sums = shape.query_sums();
  const auto run = [&](const AttentionTask& task, float* query_sums, float* scratch) {
    kernel.backward(shape, task, from, result, log_sums, upstream, to, query_sums, scratch);
  };
  if (parts == 1) {
    return for_each_task(shape, 1, sums + kernel.backward_scratch(shape),
                         [&](const AttentionTask& task, float* scratch) {
                           run(task, scratch, scratch + sums);
                           kernel.finish_queries(shape, task, scratch, to);
                         });
  }
  const at::Tensor all_sums = at::empty({shape.B, shape.KV, parts, sums}, at::kFloat);
  auto* of_all = all_sums.data_ptr<float>();
  const auto sums_of = [&](const AttentionTask& task) {
    return of_all + ((task.batch * shape.KV + task.kv_head) * parts + task.part) * sums;
  };
  for_each_task(shape, parts, kernel.backward_scratch(shape),
                [&](const AttentionTask& task, float* scratch) { run(task, sums_of(task), scratch); });
  for_each_task(shape, 1, 0, [&](AttentionTask task, float*) {
    task.parts = parts;
    kernel.finish_queries(shape, task, sums_of(task), to);
  });
}

}  // namespace

void attention(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& output,
               const at::Tensor& log_sum) {
  qkv.scalar_type() == at::kFloat ? forward<float>(shape, qkv, output, log_sum)
                                  : forward<c10::BFloat16>(shape, qkv, output, log_sum);
}

void attention_backward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& output,
                        const at::Tensor& log_sum, const at::Tensor& output_gradient, const at::Tensor& gradient) {
  qkv.scalar_type() == at::kFloat ? backward<float>(shape, qkv, output, log_sum, output_gradient, gradient)
                                  : backward<c10::BFloat16>(shape, qkv, output, log_sum, output_gradient, gradient);
}

}  // namespace gpt::ops::cpu
