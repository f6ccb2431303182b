#include "gpt/optim/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

namespace gpt::optim {
namespace {

constexpr double kInitialScale = 65536.0;
constexpr double kGrowthFactor = 2.0;
constexpr double kBackoffFactor = 0.5;
constexpr int64_t kGrowthInterval = 2000;

}  // namespace

GradScaler::GradScaler(bool enabled, at::Device device) : enabled_(enabled) {
  if (!enabled) return;
  scale_ = at::full({}, kInitialScale, at::TensorOptions().device(device).dtype(at::kFloat));
  growth_tracker_ = at::zeros({}, at::TensorOptions().device(device).dtype(at::kInt));
}

at::Tensor GradScaler::scale(const at::Tensor& x) const { return enabled_ ? x * scale_ : x; }

void GradScaler::update(const at::Tensor& grad_norm) {
  if (!enabled_) return;
  const at::Tensor found_inf = at::isfinite(grad_norm).logical_not().to(at::kFloat);
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, kGrowthFactor, kBackoffFactor, kGrowthInterval);
}

void GradScaler::load(const at::Tensor& scale, const at::Tensor& growth_tracker) {
  TORCH_CHECK(enabled_, "GradScaler: a disabled scaler has no state to load");
  scale_.copy_(scale);
  growth_tracker_.copy_(growth_tracker);
}

}  // namespace gpt::optim
