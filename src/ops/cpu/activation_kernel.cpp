#include "activation_kernel.h"

#include <algorithm>

#include "gpt/simd/float_pair.h"
#include "gpt/simd/row_steps.h"

// SiLU and GELU are x s(z(x)), with the logistic function s: z = x for SiLU, and for GELU's tanh form
// z = 2 sqrt(2 / pi) (x + 0.044715 x^3), since (1 + tanh u) / 2 = s(2 u). The third is the square of ReLU.

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

constexpr float kLog2E = 1.44269504f, kGelu = 1.59576912f, kCubic = 0.044715f;

struct SiluArgument {
  static FloatVector z(FloatVector x) { return x; }
  static FloatVector slope(FloatVector) { return FloatVector(1.0f); }  // dz/dx
};

struct GeluArgument {
  static FloatVector z(FloatVector x) {
    return x * at::vec::fmadd(x * x, FloatVector(kGelu * kCubic), FloatVector(kGelu));
  }
  static FloatVector slope(FloatVector x) {
    return at::vec::fmadd(x * x, FloatVector(3 * kGelu * kCubic), FloatVector(kGelu));
  }
};

// s = 1 / (1 + e^-z) and 1 - s, which a subtraction would leave without digits where s is near 1. Beyond 87 the sum is 1, or its
// reciprocal as good as 0.
struct Logistic {
  FloatVector s, rest;

  explicit Logistic(FloatVector z) {
    const FloatVector power = exp2(at::vec::clamp_max(z * FloatVector(-kLog2E), FloatVector(126.0f)));
    s = FloatVector(1.0f) / (FloatVector(1.0f) + power);
    rest = power * s;
  }
};

struct ValueAndSlope {
  FloatVector value, slope;
};

template <class Argument>
struct ByLogistic {
  static FloatVector value(FloatVector x) { return x * Logistic(Argument::z(x)).s; }
  static ValueAndSlope both(FloatVector x) {
    const auto [s, rest] = Logistic(Argument::z(x));
    return {x * s, s + x * s * rest * Argument::slope(x)};
  }
};
using Silu = ByLogistic<SiluArgument>;
using Gelu = ByLogistic<GeluArgument>;

struct Relu2 {
  static FloatVector open(FloatVector x) { return at::vec::maximum(x, FloatVector(0.0f)); }  // a NaN stays one
  static FloatVector value(FloatVector x) { return open(x) * open(x); }
  static ValueAndSlope both(FloatVector x) { return {value(x), open(x) + open(x)}; }
};

// A block of a tensor as float32.
struct Block {
  alignas(64) float data[kActivationBlock];

  template <class T>
  void load(const T* from, int64_t count) {
    for (int64_t i = 0; i < count; i += FloatPair::size())
      cpu::store(cpu::load(from + i, std::min(FloatPair::size(), count - i)), data + i);
  }

  template <class T>
  void store(T* to, int64_t count) const {
    for (int64_t i = 0; i < count; i += FloatPair::size())
      cpu::store(cpu::load(data + i), to + i, std::min(FloatPair::size(), count - i));
  }
};

// Calls work(first, count, row, number) for blocks: of elements from `first` on, the block of that number in the row.
template <class T, class Work>
void for_each_block(const ActivationArguments<T>& arguments, int64_t begin, int64_t end, const Work& work) {
  const int64_t of_row = activation_blocks(arguments.columns);
  int64_t row = begin / of_row, number = begin % of_row;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t column = number * kActivationBlock;
    work(row * arguments.columns + column, std::min(kActivationBlock, arguments.columns - column), row, number);
    if (++number == of_row) number = 0, ++row;
  }
}

// The factors of a row's block of this number. Where the row is a part of the whole model's, it may lie in two blocks of the mask.
void draw(const DropoutMask& mask, int64_t row, int64_t number, Block& factors) {
  const int64_t first = mask.first_column + number * kActivationBlock, shift = first % kActivationBlock;
  row_factors(mask, row, first / kActivationBlock, factors.data);
  if (shift == 0) return;
  Block next;
  row_factors(mask, row, first / kActivationBlock + 1, next.data);
  std::copy(factors.data + shift, factors.data + kActivationBlock, factors.data);
  std::copy(next.data, next.data + shift, factors.data + kActivationBlock - shift);
}

template <class Function, class T>
void forward_as(const ActivationArguments<T>& arguments, int64_t begin, int64_t end, T* y) {
  Block x, in, factors;
  for_each_block(arguments, begin, end, [&](int64_t first, int64_t count, int64_t row, int64_t number) {
    x.load(arguments.x + first, count);
    if (arguments.in) in.load(arguments.in + first, count);
    if (arguments.dropout) draw(arguments.dropout, row, number, factors);
    for (int64_t i = 0; i < kActivationBlock; i += FloatVector::size()) {
      const FloatVector value = FloatVector::loadu(x.data + i);
      FloatVector result = Function::value(value);
      if (arguments.in) result = result * FloatVector::loadu(in.data + i);
      if (arguments.dropout) result = result * FloatVector::loadu(factors.data + i);
      result.store(x.data + i);
    }
    x.store(y + first, count);
  });
}

template <class Function, class T>
void backward_as(const ActivationArguments<T>& arguments, int64_t begin, int64_t end, const T* y_gradient,
                 T* x_gradient, T* in_gradient) {
  Block x, in, factors, upstream;
  for_each_block(arguments, begin, end, [&](int64_t first, int64_t count, int64_t row, int64_t number) {
    x.load(arguments.x + first, count);
    upstream.load(y_gradient + first, count);
    if (arguments.in) in.load(arguments.in + first, count);
    if (arguments.dropout) draw(arguments.dropout, row, number, factors);
    for (int64_t i = 0; i < kActivationBlock; i += FloatVector::size()) {
      const FloatVector value = FloatVector::loadu(x.data + i);
      const auto [activated, slope] = Function::both(value);
      FloatVector gradient = FloatVector::loadu(upstream.data + i);
      if (arguments.dropout) gradient = gradient * FloatVector::loadu(factors.data + i);
      if (arguments.in) {
        const FloatVector factor = FloatVector::loadu(in.data + i);
        (gradient * activated).store(in.data + i);
        gradient = gradient * factor;
      }
      (gradient * slope).store(x.data + i);
    }
    x.store(x_gradient + first, count);
    if (arguments.in) in.store(in_gradient + first, count);
  });
}

template <class T>
void forward(const ActivationArguments<T>& arguments, int64_t begin, int64_t end, T* y) {
  switch (arguments.activation) {
    case Activation::silu: return forward_as<Silu>(arguments, begin, end, y);
    case Activation::gelu: return forward_as<Gelu>(arguments, begin, end, y);
    case Activation::relu2: return forward_as<Relu2>(arguments, begin, end, y);
  }
}

template <class T>
void backward(const ActivationArguments<T>& arguments, int64_t begin, int64_t end, const T* y_gradient, T* x_gradient,
              T* in_gradient) {
  const auto as = [&]<class Function>() {
    backward_as<Function>(arguments, begin, end, y_gradient, x_gradient, in_gradient);
  };
  switch (arguments.activation) {
    case Activation::silu: return as.template operator()<Silu>();
    case Activation::gelu: return as.template operator()<Gelu>();
    case Activation::relu2: return as.template operator()<Relu2>();
  }
}

}  // namespace

extern const ActivationKernels<float> activation_float32;
const ActivationKernels<float> activation_float32{forward<float>, backward<float>};
extern const ActivationKernels<c10::BFloat16> activation_bfloat16;
const ActivationKernels<c10::BFloat16> activation_bfloat16{forward<c10::BFloat16>, backward<c10::BFloat16>};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
