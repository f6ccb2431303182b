// The kernel of the cross entropy with a teacher, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and
// how it is launched.
//
// Beside the cross entropy of classifier.cuh: with the teacher's logits y, whose largest is n, the temperature t, its powers
// q_v = e^((y_v - n) / t) with the sum u, and the student's r = sum_v e^((z_v - m) / t), the divergence is
// log r - log u + sum_v q_v ((y_v - n) - (z_v - m)) / (t u). Of its square's multiple, t^2, the gradient is t (e^((z_v - m) / t) / r - q_v / u).
#pragma once

#include <c10/macros/Macros.h>

#include <algorithm>
#include <cfloat>

#include "classifier.cuh"

namespace gpt::ops::cuda {

// The largest of a thread's real logits.
template <bool is_whole, class T>
__device__ float largest_of_row(const T* logits, int64_t V) {
  float largest = -FLT_MAX;
  for (int64_t begin = int64_t{threadIdx.x} * kGroup; begin < V; begin += int64_t{blockDim.x} * kGroup) {
    const Group z = load<is_whole>(logits + begin, V - begin);
    for (int i = 0; i < kGroup; ++i) largest = begin + i < V ? fmaxf(largest, z.values[i]) : largest;
  }
  return largest;
}

// One block computes a row. It reads both models' logits three times: for their maxima, for the sums, and for the gradients.
template <bool is_whole, class T>
__global__ void __launch_bounds__(kMostLogitThreads) distillation_kernel(DistillationRows<T> of) {
  const CrossEntropyRows<T>& student = of.student;
  const int64_t row = blockIdx.x, V = student.vocabulary, target = student.targets[row];
  CUDA_KERNEL_ASSERT(target >= kMaskedTarget && target < V);
  if (target == kMaskedTarget) return clear_row<is_whole>(student, row);
  T* const logits = student.logits + row * student.stride;
  const T* const teacher = of.teacher + row * of.stride;
  const auto target_logit = static_cast<float>(logits[target]);
  const float m = block_maximum(largest_of_row<is_whole>(logits, V)),
              n = block_maximum(largest_of_row<is_whole>(teacher, V));
  const float weight = of.weight, temperature = of.temperature, cold = 1 / temperature;

  float powers = 0, softened = 0, teachers = 0, distance = 0, total = 0;
  for (int64_t begin = int64_t{threadIdx.x} * kGroup; begin < V; begin += int64_t{blockDim.x} * kGroup) {
    const Group z = load<is_whole>(logits + begin, V - begin), y = load<is_whole>(teacher + begin, V - begin);
    for (int i = 0; i < kGroup; ++i) {
      if (begin + i >= V) break;
      const float above = z.values[i] - m, teacher_above = y.values[i] - n, q = power<T>(teacher_above * cold);
      powers += power<T>(above);
      softened += power<T>(above * cold);
      teachers += q;
      distance += q * (teacher_above - above);
      total += above;
    }
  }
  const Sums of_student = block_sums({powers, softened}), of_teacher = block_sums({teachers, distance}),
             of_logits = block_sums({total, 0});
  const float log_sum = logf(of_student.first), soft_log = logf(of_student.second), log_wanted = logf(of_teacher.first),
              uniform = student.smoothing / static_cast<float>(V);
  if (threadIdx.x == 0) {
    const float text = log_sum - (1 - student.smoothing) * (target_logit - m) - uniform * of_logits.first;
    const float divergence = soft_log - log_wanted + of_teacher.second / (of_teacher.first * temperature);
    student.losses[row] = (1 - weight) * text + weight * temperature * temperature * divergence;
  }
  if (!student.scale) return;
  const float text_scale = *student.scale * (1 - weight), teacher_scale = *student.scale * weight * temperature;
  for (int64_t begin = int64_t{threadIdx.x} * kGroup; begin < student.stride; begin += int64_t{blockDim.x} * kGroup) {
    Group z = load<is_whole>(logits + begin, student.stride - begin);
    const Group y = load<is_whole>(teacher + begin, begin < V ? V - begin : 0);
    for (int i = 0; i < kGroup; ++i) {
      const float above = z.values[i] - m, hard = power<T>(above - log_sum) - uniform,
                  soft = power<T>(above * cold - soft_log), wanted = power<T>((y.values[i] - n) * cold - log_wanted),
                  text = hard - (begin + i == target ? 1 - student.smoothing : 0.0f);
      z.values[i] = begin + i < V ? text_scale * text + teacher_scale * (soft - wanted) : 0.0f;
    }
    store<is_whole>(z, logits + begin, student.stride - begin);
  }
}

// As cpu::distillation().
template <class Launch>
void distillation(const Launch& launch, const ClassifierOptions& options, const at::Tensor& logits,
                  const at::Tensor& teacher, const at::Tensor& targets, const at::Tensor& losses,
                  const at::Tensor& scale) {
  with_type(logits.scalar_type(), [&]<class T>() {
    const auto of = distillation_rows<T>(options, logits, teacher, targets, losses, scale);
    const CrossEntropyRows<T>& student = of.student;
    const auto threads =
        static_cast<unsigned>(std::min<int64_t>(kMostLogitThreads, (groups_of(student.stride) + 31) / 32 * 32));
    const bool whole = student.stride % kGroup == 0 && of.stride >= student.stride && of.stride % kGroup == 0 &&
                       are_aligned(student.logits, of.teacher);
    launch(whole ? distillation_kernel<true, T> : distillation_kernel<false, T>, logits.size(0), threads, of);
  });
}

}  // namespace gpt::ops::cuda
