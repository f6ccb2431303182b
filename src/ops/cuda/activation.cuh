// The kernels of the activations, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and how they
// are launched.
#pragma once

#include <ATen/ops/empty.h>

#include "gpt/ops/operators.h"
#include "launch.cuh"
#include "row_sums.cuh"

namespace gpt::ops::cuda {

// The value of an activation and its derivative.
struct ValueAndSlope {
  float value, slope;
};

// 1 / (1 + e^-x) and what is left to 1, neither by a difference that would cancel.
struct Logistic {
  float value, rest;
};

template <class T>
__device__ Logistic logistic(float x) {
  const float powered = power<T>(-fabsf(x)), larger = reciprocal<T>(1 + powered), smaller = powered * larger;
  return x < 0 ? Logistic{smaller, larger} : Logistic{larger, smaller};
}

template <class T>
__device__ ValueAndSlope silu(float x) {
  const Logistic sigmoid = logistic<T>(x);
  return {x * sigmoid.value, sigmoid.value * (1 + x * sigmoid.rest)};
}

// x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3)
template <class T>
__device__ ValueAndSlope gelu(float x) {
  constexpr float kScale = 0.7978845608f, kCubic = 0.044715f;
  const float square = x * x;
  const Logistic half = logistic<T>(2 * kScale * x * (1 + kCubic * square));  // (1 + tanh u) / 2
  return {x * half.value, half.value + 2 * x * half.value * half.rest * kScale * (1 + 3 * kCubic * square)};
}

// The square of ReLU.
__device__ inline ValueAndSlope relu2(float x) {
  const float open = x < 0 ? 0 : x;  // a NaN stays one
  return {open * open, 2 * open};
}

// The precision is that of values stored as T.
template <Activation activation, class T>
__device__ ValueAndSlope activate(float x) {
  if constexpr (activation == Activation::relu2)
    return relu2(x);
  else
    return activation == Activation::silu ? silu<T>(x) : gelu<T>(x);
}

// The tensors of one activation, of `count` elements in rows of `columns`; null: without. Where nothing asks for rows, all elements are
// one, so that groups are whole.
template <class T>
struct ActivationTensors {
  int64_t count, columns;
  DropoutMask dropout;
  const T *x, *in;
  T* y = nullptr;
  const T* y_gradient = nullptr;
  T *x_gradient = nullptr, *in_gradient = nullptr;
};

inline constexpr unsigned kActivationThreads = 256;

// The groups of the rows, of which a row's last one may be smaller.
template <class T>
int64_t all_groups(const ActivationTensors<T>& of) {
  return of.count == 0 ? 0 : of.count / of.columns * groups_of(of.columns);
}

// Where a group is: its row and its number there, its first element, and how many the row has from that on.
struct GroupPlace {
  int64_t row, number, begin, count;
};

// The place of the `index`-th group. Only dropout asks for its row: elsewhere all elements are one. The division has 32 bits, which take a
// fraction of the time of 64.
template <class T>
__device__ GroupPlace place_of(const ActivationTensors<T>& of, int64_t index) {
  if (!of.dropout.place) return {0, index, index * kGroup, of.count - index * kGroup};
  const auto groups = static_cast<uint32_t>((of.columns + kGroup - 1) / kGroup),
             row = static_cast<uint32_t>(index) / groups;
  const int64_t number = static_cast<uint32_t>(index) - row * groups, column = number * kGroup;
  return {row, number, row * of.columns + column, of.columns - column};
}

// One group of elements a thread.
template <Activation activation, bool is_whole, class T>
__global__ void __launch_bounds__(kActivationThreads) activation_kernel(ActivationTensors<T> of, int64_t groups) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= groups) return;
  const auto [row, group, begin, count] = place_of(of, index);
  Group y = load<is_whole>(of.x + begin, count);
  for (float& value : y.values) value = activate<activation, T>(value).value;
  if (of.in) {
    const Group in = load<is_whole>(of.in + begin, count);
    for (int i = 0; i < kGroup; ++i) y.values[i] *= in.values[i];
  }
  if (of.dropout.place) {
    const Group factors = dropout_factors(of.dropout, row, group);
    for (int i = 0; i < kGroup; ++i) y.values[i] *= factors.values[i];
  }
  store<is_whole>(y, of.y + begin, count);
}

struct ActivationGradients {
  Group x, in;
};

// Writes the gradients of one group, and returns what they were before they were rounded.
template <Activation activation, bool is_whole, class T>
__device__ ActivationGradients backward_of_group(const ActivationTensors<T>& of, GroupPlace place) {
  const auto [row, group, begin, count] = place;
  const Group x = load<is_whole>(of.x + begin, count);
  Group gradient = load<is_whole>(of.y_gradient + begin, count), of_in{};
  if (of.dropout.place) {
    const Group factors = dropout_factors(of.dropout, row, group);
    for (int i = 0; i < kGroup; ++i) gradient.values[i] *= factors.values[i];
  }
  if (of.in) {
    const Group in = load<is_whole>(of.in + begin, count);
    for (int i = 0; i < kGroup; ++i) {
      const ValueAndSlope act = activate<activation, T>(x.values[i]);
      of_in.values[i] = gradient.values[i] * act.value;
      gradient.values[i] *= in.values[i] * act.slope;
    }
    store<is_whole>(of_in, of.in_gradient + begin, count);
  } else {
    for (int i = 0; i < kGroup; ++i) gradient.values[i] *= activate<activation, T>(x.values[i]).slope;
  }
  store<is_whole>(gradient, of.x_gradient + begin, count);
  return {gradient, of_in};
}

template <Activation activation, bool is_whole, class T>
__global__ void __launch_bounds__(kActivationThreads)
    activation_backward_kernel(ActivationTensors<T> of, int64_t groups) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index < groups) backward_of_group<activation, is_whole>(of, place_of(of, index));
}

// The same for rows of whole groups, and the sums of both gradients over the rows: `sums` (parts, 2, C). A block does 32 groups of
// columns and the rows of a part, of which each of its warps takes every eighth.
struct SummedRows {
  int64_t rows, groups, column_blocks, parts;
  float* sums;
};

template <Activation activation, class T>
__global__ void __launch_bounds__(32 * kWarps) activation_backward_sums_kernel(ActivationTensors<T> of, SummedRows to) {
  const int64_t group = blockIdx.x % to.column_blocks * 32 + threadIdx.x % 32, part = blockIdx.x / to.column_blocks;
  Group of_x{}, of_in{};
  for (int64_t row = part * kWarps + threadIdx.x / 32; group < to.groups && row < to.rows; row += to.parts * kWarps) {
    const int64_t begin = (row * to.groups + group) * kGroup;
    const ActivationGradients gradients =
        backward_of_group<activation, true>(of, {row, group, begin, of.count - begin});
    add(of_x, gradients.x);
    if (of.in) add(of_in, gradients.in);
  }
  of_x = sum_of_warps(of_x);
  if (of.in) of_in = sum_of_warps(of_in);
  if (threadIdx.x >= 32 || group >= to.groups) return;
  float* const sums = to.sums + (2 * part * to.groups + group) * kGroup;
  store<true>(of_x, sums, kGroup);
  if (of.in) store<true>(of_in, sums + to.groups * kGroup, kGroup);
}

// Calls work.operator()<activation>().
template <class Work>
void with_activation(Activation activation, const Work& work) {
  switch (activation) {
    case Activation::silu: return work.template operator()<Activation::silu>();
    case Activation::gelu: return work.template operator()<Activation::gelu>();
    case Activation::relu2: return work.template operator()<Activation::relu2>();
  }
}

// Whether all groups of its tensors are whole and aligned.
template <class T>
bool is_whole(const ActivationTensors<T>& of) {
  return of.columns % kGroup == 0 && are_aligned(of.x, of.in, of.y, of.y_gradient, of.x_gradient, of.in_gradient);
}

// The forward pass where there is a y, otherwise the backward pass.
template <class T, class Launch>
void launch_activation(const Launch& launch, Activation activation, const ActivationTensors<T>& of) {
  const int64_t groups = all_groups(of), blocks = (groups + kActivationThreads - 1) / kActivationThreads;
  TORCH_CHECK(!of.dropout.place || groups < int64_t{1} << 32,
              "activation: the dropout numbers 2^32 groups of columns at most");
  with_activation(activation, [&]<Activation kind>() {
    const auto with = [&]<bool whole>() {
      const auto forward = activation_kernel<kind, whole, T>, backward = activation_backward_kernel<kind, whole, T>;
      launch(of.y ? forward : backward, blocks, kActivationThreads, of, groups);
    };
    is_whole(of) ? with.template operator()<true>() : with.template operator()<false>();
  });
}

// The backward pass with the sums over rows of C values.
template <class T, class Launch>
at::Tensor launch_activation_sums(const Launch& launch, Activation activation, const ActivationTensors<T>& of,
                                  int64_t C, const at::TensorOptions& options) {
  const int64_t rows = of.count / C, blocks = column_blocks(C, 32),
                parts = row_parts(rows, blocks, launch.multiprocessors());
  const at::Tensor sums = at::empty({parts, 2, C}, options.dtype(at::kFloat));
  const SummedRows to{rows, groups_of(C), blocks, parts, write<float>(sums)};
  with_activation(activation, [&]<Activation kind>() {
    launch(activation_backward_sums_kernel<kind, T>, parts * blocks, 32 * kWarps, of, to);
  });
  return sums;
}

// As cpu::activation().
template <class Launch>
void activation(const Launch& launch, Activation activation, const Dropout& dropout, const at::Tensor& x,
                const at::Tensor& in, const at::Tensor& y) {
  with_type(x.scalar_type(), [&]<class T>() {
    launch_activation<T>(launch, activation,
                         {.count = x.numel(),
                          .columns = dropout ? columns_of(x) : x.numel(),
                          .dropout = mask_of(dropout),
                          .x = read<T>(x),
                          .in = read<T>(in),
                          .y = write<T>(y)});
  });
}

// As cpu::activation_backward(), with sums for rows of whole, aligned groups.
template <class Launch>
at::Tensor activation_backward(const Launch& launch, Activation activation, const Dropout& dropout, const at::Tensor& x,
                               const at::Tensor& in, const at::Tensor& y_gradient, const at::Tensor& x_gradient,
                               const at::Tensor& in_gradient, bool sums_rows) {
  const int64_t C = columns_of(x);
  at::Tensor sums;
  with_type(x.scalar_type(), [&]<class T>() {
    const ActivationTensors<T> of{.count = x.numel(),
                                  .columns = dropout ? C : x.numel(),
                                  .dropout = mask_of(dropout),
                                  .x = read<T>(x),
                                  .in = read<T>(in),
                                  .y_gradient = read<T>(y_gradient),
                                  .x_gradient = write<T>(x_gradient),
                                  .in_gradient = write<T>(in_gradient)};
    if (sums_rows && C % kGroup == 0 && is_whole(of)) {
      sums = launch_activation_sums(launch, activation, of, C, x.options());
    } else {
      launch_activation(launch, activation, of);
    }
  });
  return sums;
}

}  // namespace gpt::ops::cuda
