// Matrix products in vector instructions of our own, on a CPU.
#pragma once

#include "gpt/products/tuned_product.h"

namespace gpt::ops::cpu {

// Whether there is a kernel for a product of these types that this processor has the instructions for, and for factors that lie like
// these: by rows or by columns, and bfloat16 values that are neighbours in a sum in pairs.
bool can_multiply(const Product& product);

// The product without `gelu`, where can_multiply().
void multiply(const Product& product);

}  // namespace gpt::ops::cpu
