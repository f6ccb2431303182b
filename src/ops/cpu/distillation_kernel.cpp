#include "distillation_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpt/simd/float_pair.h"

// Beside the cross entropy of classifier_kernel.cpp: with the teacher's logits y, whose largest is n, the temperature t, its powers
// q_v = e^((y_v - n) / t) with the sum u, and the student's r = sum_v e^((z_v - m) / t), the divergence is
// log r - log u + sum_v q_v ((y_v - n) - (z_v - m)) / (t u). Of its square's multiple, t^2, the gradient is t (e^((z_v - m) / t) / r - q_v / u).

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

constexpr int64_t kUnit = FloatPair::size();  // logits loaded at once
constexpr float kLog2E = 1.44269504f;
constexpr float kNever = -1e30f;  // a logit whose power is 0, and which is finite, so that 0 times it is 0

FloatPair clamped_below(const FloatPair& x, const FloatPair& least) {
  return {at::vec::clamp_min(x.low, least.low), at::vec::clamp_min(x.high, least.high)};
}

// e^(x factor)
FloatPair power(const FloatPair& x, float factor) {
  const FloatVector to_base_2(kLog2E * factor);
  return {exp2(x.low * to_base_2), exp2(x.high * to_base_2)};
}

float total_of(const FloatPair& x) { return sum_of(x.low + x.high); }

template <class T>
float maximum_of_row(const T* logits, int64_t length) {
  const FloatVector lowest(-std::numeric_limits<float>::infinity());
  FloatPair most{lowest, lowest};
  const int64_t whole = length - length % kUnit;
  for (int64_t v = 0; v < whole; v += kUnit) most = clamped_below(load(logits + v), most);
  float maximum = maximum_of(at::vec::clamp_min(most.low, most.high));
  for (int64_t v = whole; v < length; ++v) maximum = std::max(maximum, static_cast<float>(logits[v]));
  return maximum;
}

// Both rows of real logits, above their maxima. Those that do not fill a unit are filled up.
template <class T>
class Rows {
 public:
  Rows(T* student, const T* teacher, int64_t length)
      : student_(student),
        teacher_(teacher),
        whole_(length - length % kUnit),
        left_(length % kUnit),
        of_student_(maximum_of_row(student, length)),
        of_teacher_(maximum_of_row(teacher, length)) {
    std::fill(rest_, rest_ + kUnit, static_cast<T>(kNever));
    std::fill(teacher_rest_, teacher_rest_ + kUnit, static_cast<T>(kNever));
    std::copy(student + whole_, student + length, rest_);
    std::copy(teacher + whole_, teacher + length, teacher_rest_);
  }

  float above(int64_t v) const { return static_cast<float>(student_[v]) - of_student_; }
  float teacher_above(int64_t v) const { return static_cast<float>(teacher_[v]) - of_teacher_; }

  // work(student's, teacher's)
  template <class Work>
  void for_each_unit(const Work& work) const {
    const FloatVector m(of_student_), n(of_teacher_);
    for (int64_t v = 0; v < whole_; v += kUnit) work(load(student_ + v) - m, load(teacher_ + v) - n);
    if (left_ > 0) work(load(rest_) - m, load(teacher_rest_) - n);
  }

  // The student's logits become work(student's, teacher's).
  template <class Work>
  void replace(const Work& work) {
    const FloatVector m(of_student_), n(of_teacher_);
    for (int64_t v = 0; v < whole_; v += kUnit)
      store(work(load(student_ + v) - m, load(teacher_ + v) - n), student_ + v);
    if (left_ > 0) store(work(load(rest_) - m, load(teacher_rest_) - n), student_ + whole_, left_);
  }

  // The mean of the student's logits above their maximum.
  float mean() const {
    FloatPair sum;
    const FloatVector m(of_student_);
    for (int64_t v = 0; v < whole_; v += kUnit) sum = sum + (load(student_ + v) - m);
    float all = total_of(sum);
    for (int64_t i = 0; i < left_; ++i) all += static_cast<float>(rest_[i]) - of_student_;
    return all / static_cast<float>(whole_ + left_);
  }

 private:
  T* student_;
  const T* teacher_;
  int64_t whole_, left_;
  float of_student_, of_teacher_;  // their maxima
  alignas(64) T rest_[kUnit];
  alignas(64) T teacher_rest_[kUnit];
};

template <class T>
void distillation(const DistillationRows<T>& of, int64_t begin, int64_t end) {
  const CrossEntropyRows<T>& student = of.student;
  const int64_t V = student.vocabulary;
  const float smoothing = student.smoothing, share = smoothing / static_cast<float>(V), weight = of.weight,
              temperature = of.temperature, cold = 1 / temperature;
  for (int64_t i = begin; i < end; ++i) {
    T* const logits = student.logits + i * student.stride;
    if (student.targets[i] < 0) {  // masked
      student.losses[i] = 0;
      if (student.scale) std::fill(logits, logits + student.stride, static_cast<T>(0.0f));
      continue;
    }
    const int64_t token = student.targets[i];
    Rows<T> rows(logits, of.teacher + i * of.stride, V);
    FloatPair powers, softened, teachers, distance;
    rows.for_each_unit([&](const FloatPair& z, const FloatPair& y) {
      const FloatPair q = power(y, cold);
      powers = powers + power(z, 1);
      softened = softened + power(z, cold);
      teachers = teachers + q;
      distance = fmadd(q, y - z, distance);
    });
    const float sum = total_of(powers), soft_sum = total_of(softened), teacher_sum = total_of(teachers);
    const float above = rows.above(token), teacher_above = rows.teacher_above(token);
    float text = std::log(sum) - (1 - smoothing) * above;
    if (smoothing > 0) text -= smoothing * rows.mean();
    const float divergence =
        std::log(soft_sum) - std::log(teacher_sum) + total_of(distance) / (teacher_sum * temperature);
    student.losses[i] = (1 - weight) * text + weight * temperature * temperature * divergence;
    if (!student.scale) continue;
    const float of_text = *student.scale * (1 - weight), of_teacher = *student.scale * weight * temperature;
    const float hard = of_text / sum, soft = of_teacher / soft_sum, wanted = of_teacher / teacher_sum;
    rows.replace([&](const FloatPair& z, const FloatPair& y) {
      const FloatPair towards = power(z, cold) * FloatVector(soft) - power(y, cold) * FloatVector(wanted);
      return power(z, 1) * FloatVector(hard) + towards - FloatVector(of_text * share);
    });
    logits[token] = static_cast<T>(hard * std::exp(above) + soft * std::exp(above * cold) -
                                   wanted * std::exp(teacher_above * cold) - of_text * (1 - smoothing + share));
    std::fill(logits + V, logits + student.stride, static_cast<T>(0.0f));
  }
}

}  // namespace

extern const DistillationKernel<float> distillation_float32;
const DistillationKernel<float> distillation_float32 = distillation<float>;
extern const DistillationKernel<c10::BFloat16> distillation_bfloat16;
const DistillationKernel<c10::BFloat16> distillation_bfloat16 = distillation<c10::BFloat16>;

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
