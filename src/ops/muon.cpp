#include "gpt/ops/muon.h"

#include <algorithm>
#include <initializer_list>

#include "gpt/layout/alignment.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

// `may_be_on_host`: its memory need not be the device's.
void require_muon_buffer(const at::Tensor& buffer, int64_t count, std::initializer_list<at::ScalarType> types,
                         at::Device device, bool may_be_on_host = false) {
  const bool has_type = std::find(types.begin(), types.end(), buffer.scalar_type()) != types.end();
  TORCH_CHECK(has_type && buffer.dim() == 1 && buffer.numel() == count && buffer.is_contiguous() &&
                  (buffer.device() == device || (may_be_on_host && buffer.is_cpu())),
              "muon: a buffer of ", buffer.sizes(), " and type ", buffer.scalar_type(), " on ", buffer.device(),
              " does not fit ", count, " values on ", device);
}

void require_muon_scalars(const MuonScalars& scalars, at::Device device) {
  for (const at::Tensor* scalar :
       {&scalars.learning_rate, &scalars.decay_share, &scalars.step_count, &scalars.divisor, &scalars.found_inf}) {
    TORCH_CHECK(scalar->dim() == 0 && scalar->scalar_type() == at::kFloat && scalar->device() == device,
                "muon: a float32 scalar on ", device, " expected, got ", scalar->sizes(), " ", scalar->scalar_type(),
                " on ", scalar->device());
  }
}

}  // namespace

void muon_direction(const MuonBuffers& buffers, double momentum, const MuonScalars& scalars) {
  const int64_t count = buffers.gradients.numel();
  const at::Device device = buffers.gradients.device();
  TORCH_CHECK(count % layout::kParameterAlignment == 0, "muon: ", count, " values are no whole blocks");
  TORCH_CHECK(momentum >= 0 && momentum < 1, "muon: the momentum must be in [0, 1), got ", momentum);
  require_muon_buffer(buffers.gradients, count, {at::kFloat, at::kBFloat16}, device);
  require_muon_buffer(buffers.direction, count, {at::kFloat, at::kBFloat16}, device);
  require_muon_buffer(buffers.momentum, count, {at::kFloat, at::kBFloat16, at::kByte}, device, /*may_be_on_host=*/true);
  const bool has_codes = buffers.momentum.scalar_type() == at::kByte;
  TORCH_CHECK(has_codes == buffers.momentum_max.defined(), "muon: codes, and they alone, have maxima");
  if (has_codes)
    require_muon_buffer(buffers.momentum_max, count / layout::kParameterAlignment, {at::kFloat}, device,
                        /*may_be_on_host=*/true);
  require_muon_scalars(scalars, device);
  kernels_of(buffers.gradients)->muon_direction(buffers, momentum, scalars);
}

void muon_update(const MuonWeights& weights, const MuonRates& rates, const MuonScalars& scalars) {
  const int64_t count = weights.direction.numel();
  const at::Device device = weights.direction.device();
  TORCH_CHECK(count % layout::kParameterAlignment == 0, "muon: ", count, " values are no whole blocks");
  TORCH_CHECK(weights.values.defined() || weights.rounded.defined(), "muon: there are no values");
  require_muon_buffer(weights.direction, count, {at::kFloat, at::kBFloat16}, device);
  if (weights.values.defined()) require_muon_buffer(weights.values, count, {at::kFloat}, device);
  if (weights.rounded.defined()) require_muon_buffer(weights.rounded, count, {at::kBFloat16}, device);
  require_muon_scalars(scalars, device);
  kernels_of(weights.direction)->muon_update(weights, rates, scalars);
}

}  // namespace gpt::ops
