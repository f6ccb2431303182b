// The normalization of queries and keys.
#pragma once

#include "gpt/parameters/parameters.h"

namespace gpt::ops {

// Queries and keys are normalized before they are rotated: an RMSNorm over the values of a head, with weights that all heads share (Henry et
// al. (2020), "Query-Key Normalization for Transformers"; in this form Qwen3's).
struct HeadNorms {
  parameters::Parameter query, key;  // (D)
  double eps = 0;
  double offset = 0;  // what a weight is added to

  bool defined() const { return query.defined(); }
};

}  // namespace gpt::ops
