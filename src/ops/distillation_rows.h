// What the kernels of the classifier with a teacher are given, on every device. Small, as rows.h is.
#pragma once

#include "rows.h"

namespace gpt::ops {

// Beside the logits of `student` stand those of a teacher, whose share of the loss is `weight`, with both over `temperature`.
template <class T>
struct DistillationRows {
  CrossEntropyRows<T> student;
  const T* teacher;
  int64_t stride;  // of the teacher's
  float weight, temperature;
};

}  // namespace gpt::ops
