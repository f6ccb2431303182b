#include "dropout.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

namespace gpt::ops {

Dropout dropout_of(const DropoutSpec& spec, const at::Tensor& x, int64_t of_sample) {
  const double probability = spec.probability;
  TORCH_CHECK(probability >= 0 && probability < 1, "dropout: the probability must be in [0, 1), got ", probability);
  if (probability == 0) return {};
  const at::Tensor& place = spec.place;
  TORCH_CHECK(!place.defined() || (place.scalar_type() == at::kLong && place.dim() == 1 && place.size(0) == 2 &&
                                   place.is_contiguous() && place.device() == x.device()),
              "dropout: a place must be (2) int64 on ", x.device());
  return {.kept_of_65536 = static_cast<uint32_t>(std::max(1.0, std::round((1 - probability) * 65536))),
          .site = spec.site,
          .of_sample = spec.all_heads > 0 ? spec.all_heads : of_sample,
          .first = spec.first,
          .place = place.defined() ? place : at::zeros({2}, x.options().dtype(at::kLong))};
}

int64_t rows_of_sample(const at::Tensor& x) { return x.dim() > 1 ? x.size(-2) : 1; }

int64_t columns_of(const at::Tensor& x) { return x.dim() > 0 ? x.size(-1) : 1; }

cpu::DropoutMask mask_on_cpu(const Dropout& dropout) {
  if (!dropout) return {};
  const auto* place = dropout.place.const_data_ptr<int64_t>();
  return {.key = static_cast<uint64_t>(place[0]),
          .kept_of_65536 = dropout.kept_of_65536,
          .site = dropout.site,
          .first = place[1] * dropout.of_sample,
          .of_sample = dropout.of_sample,
          .first_column = dropout.first};
}

}  // namespace gpt::ops
