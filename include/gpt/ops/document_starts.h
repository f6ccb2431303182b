// Where documents begin within sequences that were cut out of a text of many, for attention that stays within a document.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpt::ops {

// ids (B, T) int64 -> (B, T) int32 on their device: for each position, that of the last `separator` up to it, which begins its document; 0
// where there is none, since a sequence may begin within a document.
at::Tensor document_starts(const at::Tensor& ids, int64_t separator);

}  // namespace gpt::ops
