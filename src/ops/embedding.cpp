#include "gpt/ops/embedding.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// result (V, C) at row ids[i] += rows[i] (C), both float32. Each thread has its own columns, so that none waits for another and the order of
// summation does not depend on their number.
void add_rows(const at::Tensor& result, const at::Tensor& ids, const at::Tensor& rows) {
  constexpr int64_t kLeastColumns = 64, kLeastValues = 32768;  // per thread
  const int64_t count = ids.numel(), C = result.size(1);
  const auto* id = ids.const_data_ptr<int64_t>();
  const auto* from = rows.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  at::parallel_for(0, C, std::max(kLeastColumns, kLeastValues / std::max<int64_t>(1, count)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = 0; i < count; ++i) {
                       float* sum = to + id[i] * C;
                       const float* row = from + i * C;
                       for (int64_t c = begin; c < end; ++c) sum[c] += row[c];
                     }
                   });
}

// The same for a result of bfloat16, which is rounded once for each row: what it gets is summed up before, with the ids in order.
void add_rows_rounded(const at::Tensor& result, const at::Tensor& ids, const at::Tensor& rows) {
  constexpr int64_t kColumns = 64;
  const int64_t count = ids.numel(), C = result.size(1);
  const at::Tensor order = at::argsort(ids.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const auto *id = ids.const_data_ptr<int64_t>(), *place = order.const_data_ptr<int64_t>();
  const auto* from = rows.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<c10::BFloat16>();
  at::parallel_for(0, (C + kColumns - 1) / kColumns, 1, [&](int64_t first, int64_t last) {
    for (int64_t begin = first * kColumns; begin < std::min(C, last * kColumns); begin += kColumns) {
      const int64_t width = std::min(kColumns, C - begin);
      for (int64_t i = 0; i < count;) {
        const int64_t token = id[place[i]];
        float sums[kColumns] = {};
        for (; i < count && id[place[i]] == token; ++i) {
          const float* row = from + place[i] * C + begin;
          for (int64_t c = 0; c < width; ++c) sums[c] += row[c];
        }
        auto* sum = to + token * C + begin;
        for (int64_t c = 0; c < width; ++c) sum[c] = static_cast<float>(sum[c]) + sums[c];
      }
    }
  });
}

struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor& /*of autograd*/,
                            const Parameter& table) {
    context->save_for_backward({ids});
    context->saved_data["table"] = table.to_capsule();
    return at::embedding(table.compute_value(), ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor ids = context->get_saved_variables()[0];
    const Parameter table = Parameter::from_capsule(context->saved_data["table"]);
    const at::Tensor& result = table.gradient();
    if (result.is_cpu()) {
      if (!table.begin_contribution()) result.zero_();
      const auto add = result.scalar_type() == at::kFloat ? add_rows : add_rows_rounded;
      add(result, ids.contiguous(), gradients[0].to(at::kFloat).contiguous());
    } else {
      table.add_to_gradient(at::embedding_dense_backward(gradients[0], ids, result.size(0), /*padding_idx=*/-1,
                                                         /*scale_grad_by_freq=*/false));
    }
    return variable_list(3);
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const Parameter& table) {
  if (!at::GradMode::is_enabled()) return at::embedding(table.compute_value(), ids);
  return Embedding::apply(ids, table.value(), table);
}

}  // namespace gpt::ops
