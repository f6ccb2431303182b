#include <ATen/Parallel.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "embedding_kernel.h"
#include "gpt/simd/cpu_capability.h"
#include "ops/dropout.h"
#include "ops/kernels.h"
#include "ops/row_arguments.h"
#include "row_grain.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(EmbeddingKernels<float>, embedding_float32)
GPT_CPU_KERNEL(EmbeddingKernels<c10::BFloat16>, embedding_bfloat16)

namespace {

// Calls work(kernels) with those for the type of `x`.
template <class Work>
void with_kernels(const at::Tensor& x, const Work& work) {
  x.scalar_type() == at::kFloat ? work(best_embedding_float32()) : work(best_embedding_bfloat16());
}

// The gradient of each row, (rows, C): what came or, with dropout, float32 of its own. Without it nothing is converted ahead: each thread
// reads other values below than it would have written here, and half of them would come from another processor.
at::Tensor rows_of_gradient(const Dropout& dropout, const at::Tensor& gradient) {
  if (!dropout) return gradient;
  const int64_t C = gradient.size(-1);
  const at::Tensor rows = at::empty(gradient.sizes(), gradient.options().dtype(at::kFloat));
  const DropoutMask mask = mask_on_cpu(dropout);
  with_kernels(gradient, [&]<class T>(const EmbeddingKernels<T>& kernels) {
    at::parallel_for(0, gradient.numel() / C, row_grain(C), [&](int64_t begin, int64_t end) {
      kernels.backward(mask, C, read<T>(gradient), begin, end, write<float>(rows));
    });
  });
  return rows;
}

// result (V, C) float32 at row ids[i] += rows[i] (C). Each thread has its own columns, so that none waits for another and
// the order of summation does not depend on their number.
template <class From>
void add_rows(const at::Tensor& result, const at::Tensor& ids, const at::Tensor& rows) {
  constexpr int64_t kColumnsOfThread = 64, kValuesOfThread = 32768;  // at least
  const int64_t count = ids.numel(), C = result.size(1);
  const auto* id = ids.const_data_ptr<int64_t>();
  const auto* from = read<From>(rows);
  auto* to = result.mutable_data_ptr<float>();
  at::parallel_for(0, C, std::max(kColumnsOfThread, kValuesOfThread / std::max<int64_t>(1, count)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = 0; i < count; ++i) {
                       float* sum = to + id[i] * C;
                       const From* row = from + i * C;
                       for (int64_t c = begin; c < end; ++c) sum[c] += static_cast<float>(row[c]);
                     }
                   });
}

// Columns of a row whose sums are kept at hand.
constexpr int64_t kColumns = 64;

// The same for a result of bfloat16, which is rounded once for each row: what it gets is summed up before, with the ids in order.
template <class From>
void add_rows_rounded(const at::Tensor& result, const at::Tensor& ids, const at::Tensor& rows) {
  const int64_t count = ids.numel(), C = result.size(1);
  const at::Tensor order = at::argsort(ids.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const auto *id = ids.const_data_ptr<int64_t>(), *place = order.const_data_ptr<int64_t>();
  const auto* from = read<From>(rows);
  auto* to = result.mutable_data_ptr<c10::BFloat16>();
  at::parallel_for(0, at::divup(C, kColumns), 1, [&](int64_t first, int64_t last) {
    for (int64_t begin = first * kColumns; begin < std::min(C, last * kColumns); begin += kColumns) {
      const int64_t width = std::min(kColumns, C - begin);
      for (int64_t i = 0; i < count;) {
        const int64_t token = id[place[i]];
        float sums[kColumns] = {};
        for (; i < count && id[place[i]] == token; ++i) {
          const From* row = from + place[i] * C + begin;
          for (int64_t c = 0; c < width; ++c) sums[c] += static_cast<float>(row[c]);
        }
        auto* sum = to + token * C + begin;
        for (int64_t c = 0; c < width; ++c) sum[c] = static_cast<float>(sum[c]) + sums[c];
      }
    }
  });
}

// result (T, C) += the sum of rows (B, T, C) over the batch, which is rounded once.
template <class From, class T>
void add_positions(const at::Tensor& result, const at::Tensor& rows) {
  const int64_t batch = rows.size(0), values = result.numel();
  const From* from = read<From>(rows);
  T* to = write<T>(result);
  at::parallel_for(0, values, std::max(kColumns, kLeastValues / batch), [&](int64_t first, int64_t last) {
    for (int64_t begin = first; begin < last; begin += kColumns) {
      const int64_t width = std::min(kColumns, last - begin);
      float sums[kColumns] = {};
      for (int64_t b = 0; b < batch; ++b) {
        const From* row = from + b * values + begin;
        for (int64_t i = 0; i < width; ++i) sums[i] += static_cast<float>(row[i]);
      }
      for (int64_t i = 0; i < width; ++i) to[begin + i] = static_cast<float>(to[begin + i]) + sums[i];
    }
  });
}

template <class From>
void add_gradients(const at::Tensor& rows, const at::Tensor& ids, const at::Tensor& of_table,
                   const at::Tensor& of_positions) {
  const bool is_wide = (of_table.defined() ? of_table : of_positions).scalar_type() == at::kFloat;
  if (of_table.defined()) (is_wide ? add_rows<From> : add_rows_rounded<From>)(of_table, ids, rows);
  if (of_positions.defined())
    (is_wide ? add_positions<From, float> : add_positions<From, c10::BFloat16>)(of_positions, rows);
}

}  // namespace

void embedding(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions,
               const at::Tensor& y) {
  const int64_t V = table.size(0), C = table.size(1), rows = ids.numel();
  const auto* id = read<int64_t>(ids);
  for (int64_t i = 0; i < rows; ++i) {
    TORCH_CHECK_INDEX(id[i] >= 0 && id[i] < V, "embedding: the id ", id[i], " is not one of the table's ", V, " rows");
  }
  with_kernels(table, [&]<class T>(const EmbeddingKernels<T>& kernels) {
    const auto of = embedding_rows<T>(mask_on_cpu(dropout), ids, table, positions, y);
    at::parallel_for(0, rows, row_grain(C), [&](int64_t begin, int64_t end) { kernels.forward(of, begin, end); });
  });
}

void embedding_backward(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& gradient,
                        const at::Tensor& of_table, const at::Tensor& of_positions) {
  if (gradient.numel() == 0) return;
  const at::Tensor rows = rows_of_gradient(dropout, gradient);
  const bool is_float = rows.scalar_type() == at::kFloat;
  (is_float ? add_gradients<float> : add_gradients<c10::BFloat16>)(rows, ids, of_table, of_positions);
}

}  // namespace gpt::ops::cpu
