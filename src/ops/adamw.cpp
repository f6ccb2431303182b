#include "gpt/ops/adamw.h"

#include "gpt/layout/alignment.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

bool is_buffer(const at::Tensor& buffer, int64_t count, at::ScalarType type) {
  return buffer.defined() && buffer.dim() == 1 && buffer.numel() == count && buffer.is_contiguous() &&
         buffer.scalar_type() == type;
}

bool is_buffer(const at::Tensor& buffer, int64_t count, at::ScalarType type, at::Device device) {
  return is_buffer(buffer, count, type) && buffer.device() == device;
}

bool is_moment(const at::Tensor& buffer, int64_t count, at::ScalarType type, at::Device device) {
  return is_buffer(buffer, count, type) && (buffer.device() == device || buffer.is_cpu());
}

void check_moments(const AdamWBuffers& buffers) {
  const at::Device device = buffers.gradients.device();
  const int64_t count = buffers.gradients.numel();
  const at::ScalarType type = buffers.exp_avg.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kByte,
              "adamw: moments are float32, bfloat16 or codes of uint8, not ", type);
  for (const at::Tensor* moment : {&buffers.exp_avg, &buffers.exp_avg_sq}) {
    TORCH_CHECK(is_moment(*moment, count, type, device), "adamw: moments of ", moment->sizes(), " and type ",
                moment->scalar_type(), " do not fit ", count, " values and type ", type);
  }
  for (const at::Tensor* maxima : {&buffers.exp_avg_max, &buffers.exp_avg_sq_max}) {
    TORCH_CHECK(type == at::kByte ? is_moment(*maxima, count / layout::kParameterAlignment, at::kFloat, device)
                                  : !maxima->defined(),
                "adamw: moments of type ", type, " and ", count, " values have ",
                type == at::kByte ? "a float32 maximum for every block" : "no maxima");
  }
}

void check(const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars) {
  TORCH_CHECK(buffers.gradients.defined() && (buffers.values.defined() || buffers.rounded.defined()),
              "adamw: gradients, and values in float32 or rounded, must be there");
  const int64_t count = buffers.gradients.numel();
  const at::Device device = buffers.gradients.device();
  const auto require = [&](const at::Tensor& buffer, at::ScalarType type) {
    TORCH_CHECK(!buffer.defined() || is_buffer(buffer, count, type, device), "adamw: a buffer of ", buffer.sizes(),
                " and type ", buffer.scalar_type(), " does not fit ", count, " values of type ", type);
  };
  require(buffers.values, at::kFloat);
  require(buffers.rounded, at::kBFloat16);
  require(buffers.gradients, buffers.gradients.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat);
  TORCH_CHECK(count % layout::kParameterAlignment == 0 &&
                  buffers.decays.numel() == count / layout::kParameterAlignment &&
                  buffers.decays.scalar_type() == at::kByte,
              "adamw: ", buffers.decays.numel(), " flags of decay do not fit ", count, " values");
  check_moments(buffers);
  for (const at::Tensor* scalar :
       {&scalars.learning_rate, &scalars.decay_share, &scalars.step_count, &scalars.divisor, &scalars.found_inf}) {
    TORCH_CHECK(scalar->dim() == 0 && scalar->scalar_type() == at::kFloat && scalar->device() == device,
                "adamw: a float32 scalar on ", device, " expected, got ", scalar->sizes(), " ", scalar->scalar_type(),
                " on ", scalar->device());
  }
  TORCH_CHECK(rates.beta1 >= 0 && rates.beta1 < 1 && rates.beta2 >= 0 && rates.beta2 < 1 && rates.eps > 0,
              "adamw: betas must be in [0, 1) and eps positive, got ", rates.beta1, ", ", rates.beta2, " and ",
              rates.eps);
}

}  // namespace

void adamw(const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars) {
  check(buffers, rates, scalars);
  kernels_of(buffers.gradients)->adamw(buffers, rates, scalars);
}

}  // namespace gpt::ops
