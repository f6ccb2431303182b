#include "classifier_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpt/simd/float_pair.h"

// With the largest logit m of a row and s = sum_v e^(z_v - m), the loss against token t is log s - (z_t - m), and its gradient is
// e^(z_v - m) / s, less 1 at t. Label smoothing a replaces z_t by (1 - a) z_t + a mean_v z_v.

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

constexpr int64_t kUnit = FloatPair::size();  // logits loaded at once
constexpr float kLog2E = 1.44269504f;

// e^(z - maximum)
FloatVector power(FloatVector z, float maximum) { return exp2((z - FloatVector(maximum)) * FloatVector(kLog2E)); }

// One row of real logits. Those that do not fill a unit are copied to one that is filled up with -infinity, whose power is 0.
template <class T>
class Row {
 public:
  Row(T* logits, int64_t length) : logits_(logits), left_(length % kUnit), whole_(length - left_) {
    if (left_ == 0) return;
    store({infinitely_low(), infinitely_low()}, rest_);
    std::copy(logits + whole_, logits + length, rest_);
  }

  float maximum() {
    FloatVector low = infinitely_low(), high = infinitely_low();
    for_each_unit([&](const T* unit) {
      const FloatPair z = load(unit);
      low = at::vec::clamp_min(z.low, low);
      high = at::vec::clamp_min(z.high, high);
    });
    return maximum_of(at::vec::clamp_min(low, high));
  }

  float sum_of_powers(float maximum) {
    FloatVector low(0.0f), high(0.0f);
    for_each_unit([&](const T* unit) {
      const FloatPair z = load(unit);
      low = low + power(z.low, maximum);
      high = high + power(z.high, maximum);
    });
    return sum_of(low + high);
  }

  float mean_above(float maximum) const {  // the mean of z - maximum
    FloatVector low(0.0f), high(0.0f);
    for (int64_t i = 0; i < whole_; i += kUnit) {
      const FloatPair z = load(logits_ + i);
      low = low + (z.low - FloatVector(maximum));
      high = high + (z.high - FloatVector(maximum));
    }
    float sum = sum_of(low + high);
    for (int64_t i = 0; i < left_; ++i) sum += static_cast<float>(rest_[i]) - maximum;
    return sum / static_cast<float>(whole_ + left_);
  }

  // z = factor e^(z - maximum) - share
  void replace(float maximum, float factor, float share) {
    for_each_unit([&](T* unit) {
      const FloatPair z = load(unit);
      store({power(z.low, maximum) * FloatVector(factor) - FloatVector(share),
             power(z.high, maximum) * FloatVector(factor) - FloatVector(share)},
            unit);
    });
    std::copy(rest_, rest_ + left_, logits_ + whole_);
  }

 private:
  static FloatVector infinitely_low() { return FloatVector(-std::numeric_limits<float>::infinity()); }

  template <class Work>
  void for_each_unit(const Work& work) {
    for (int64_t i = 0; i < whole_; i += kUnit) work(logits_ + i);
    if (left_ > 0) work(rest_);
  }

  T* logits_;
  int64_t left_, whole_;
  alignas(64) T rest_[kUnit];
};

template <class T>
void cross_entropy(const CrossEntropyRows<T>& arguments, int64_t begin, int64_t end) {
  const int64_t V = arguments.vocabulary;
  const float smoothing = arguments.smoothing;
  for (int64_t i = begin; i < end; ++i) {
    T* logits = arguments.logits + i * arguments.stride;
    if (arguments.targets[i] < 0) {  // masked
      arguments.losses[i] = 0;
      if (arguments.scale) std::fill(logits, logits + arguments.stride, static_cast<T>(0.0f));
      continue;
    }
    T& target = logits[arguments.targets[i]];
    Row<T> row(logits, V);
    const float maximum = row.maximum(), sum = row.sum_of_powers(maximum);
    const float above = static_cast<float>(target) - maximum;
    float loss = std::log(sum) - (1 - smoothing) * above;
    if (smoothing > 0) loss -= smoothing * row.mean_above(maximum);
    arguments.losses[i] = loss;
    if (!arguments.scale) continue;
    const float scale = *arguments.scale, share = smoothing / static_cast<float>(V);
    row.replace(maximum, scale / sum, scale * share);
    target = static_cast<T>(scale * (std::exp(above) / sum - (1 - smoothing) - share));
    std::fill(logits + V, logits + arguments.stride, static_cast<T>(0.0f));
  }
}

}  // namespace

extern const CrossEntropyKernel<float> cross_entropy_float32;
const CrossEntropyKernel<float> cross_entropy_float32 = cross_entropy<float>;
extern const CrossEntropyKernel<c10::BFloat16> cross_entropy_bfloat16;
const CrossEntropyKernel<c10::BFloat16> cross_entropy_bfloat16 = cross_entropy<c10::BFloat16>;

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
