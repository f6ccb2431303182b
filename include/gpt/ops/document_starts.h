// Where documents begin within sequences that were cut out of a text of many, for attention that stays within a document.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpt::ops {

// ids (B, T) int64 -> (B, T) int32 on their device: for each position, that of the last `separator` up to it, which begins its document; 0
// where there is none, since a sequence may begin within a document.
at::Tensor document_starts(const at::Tensor& ids, int64_t separator);

// starts (B, T) int32 of documents -> (B, T) int64: the position of each token within its own.
at::Tensor positions_in_documents(const at::Tensor& starts);

// The rows of `positions` (P, C) for a sequence of T tokens: the first ones, (T, C), or where `starts` (B, T) is defined, those of each
// token's position within its document, (B, T, C).
at::Tensor position_rows(const at::Tensor& positions, const at::Tensor& starts, int64_t T);

// Adds each of the rows (N, C) to the one of `gradient` (P, C) that its place (N) int64 names. A gradient of 16 bits is
// rounded once for each row, to nearest, however many are added to it.
void add_position_rows(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& rows);

}  // namespace gpt::ops
