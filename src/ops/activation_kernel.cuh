// The kernels of the activations, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and how they
// are launched.
#pragma once

#include "gpt/ops/operators.h"
#include "launch.cuh"

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
  const float powered = power<T>(-fabsf(x)), larger = quotient<T>(1, 1 + powered), smaller = powered * larger;
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

// The precision is that of values stored as T.
template <Activation activation, class T>
__device__ ValueAndSlope activate(float x) {
  return activation == Activation::silu ? silu<T>(x) : gelu<T>(x);
}

// The tensors of one activation, of `count` elements; null: without.
template <class T>
struct ActivationTensors {
  int64_t count;
  DropoutMask dropout;
  const T *x, *in;
  T* y = nullptr;
  const T* y_gradient = nullptr;
  T *x_gradient = nullptr, *in_gradient = nullptr;
};

inline constexpr unsigned kActivationThreads = 256;

// One group of elements a thread.
template <Activation activation, bool is_whole, class T>
__global__ void __launch_bounds__(kActivationThreads) activation_kernel(ActivationTensors<T> of) {
  const int64_t group = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, begin = group * kGroup;
  if (begin >= of.count) return;
  const int64_t count = of.count - begin;
  Group y = load<is_whole>(of.x + begin, count);
  for (float& value : y.values) value = activate<activation, T>(value).value;
  if (of.in) {
    const Group in = load<is_whole>(of.in + begin, count);
    for (int i = 0; i < kGroup; ++i) y.values[i] *= in.values[i];
  }
  if (of.dropout.key) {
    const Group factors = dropout_factors(of.dropout, *of.dropout.key, group);
    for (int i = 0; i < kGroup; ++i) y.values[i] *= factors.values[i];
  }
  store<is_whole>(y, of.y + begin, count);
}

template <Activation activation, bool is_whole, class T>
__global__ void __launch_bounds__(kActivationThreads) activation_backward_kernel(ActivationTensors<T> of) {
  const int64_t group = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, begin = group * kGroup;
  if (begin >= of.count) return;
  const int64_t count = of.count - begin;
  const Group x = load<is_whole>(of.x + begin, count);
  Group gradient = load<is_whole>(of.y_gradient + begin, count);
  if (of.dropout.key) {
    const Group factors = dropout_factors(of.dropout, *of.dropout.key, group);
    for (int i = 0; i < kGroup; ++i) gradient.values[i] *= factors.values[i];
  }
  if (of.in) {
    const Group in = load<is_whole>(of.in + begin, count);
    Group of_in;
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
}

// The forward pass where there is a y, otherwise the backward pass.
template <class T, class Launch>
void launch_activation(const Launch& launch, Activation activation, const ActivationTensors<T>& of) {
  const int64_t blocks = (groups_of(of.count) + kActivationThreads - 1) / kActivationThreads;
  const auto with = [&]<Activation kind, bool is_whole>() {
    const auto forward = activation_kernel<kind, is_whole, T>, backward = activation_backward_kernel<kind, is_whole, T>;
    launch(of.y ? forward : backward, blocks, kActivationThreads, of);
  };
  const bool whole =
      of.count % kGroup == 0 && are_aligned(of.x, of.in, of.y, of.y_gradient, of.x_gradient, of.in_gradient);
  if (activation == Activation::silu) {
    whole ? with.template operator()<Activation::silu, true>() : with.template operator()<Activation::silu, false>();
  } else {
    whole ? with.template operator()<Activation::gelu, true>() : with.template operator()<Activation::gelu, false>();
  }
}

// As cpu::activation().
template <class Launch>
void activation(const Launch& launch, Activation activation, const Dropout& dropout, const at::Tensor& x,
                const at::Tensor& in, const at::Tensor& y) {
  with_type(x.scalar_type(), [&]<class T>() {
    launch_activation<T>(
        launch, activation,
        {.count = x.numel(), .dropout = mask_of(dropout), .x = read<T>(x), .in = read<T>(in), .y = write<T>(y)});
  });
}

template <class Launch>
void activation_backward(const Launch& launch, Activation activation, const Dropout& dropout, const at::Tensor& x,
                         const at::Tensor& in, const at::Tensor& y_gradient, const at::Tensor& x_gradient,
                         const at::Tensor& in_gradient) {
  with_type(x.scalar_type(), [&]<class T>() {
    launch_activation<T>(launch, activation,
                         {.count = x.numel(),
                          .dropout = mask_of(dropout),
                          .x = read<T>(x),
                          .in = read<T>(in),
                          .y_gradient = read<T>(y_gradient),
                          .x_gradient = write<T>(x_gradient),
                          .in_gradient = write<T>(in_gradient)});
  });
}

}  // namespace gpt::ops::cuda
