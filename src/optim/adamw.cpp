#include "gpt/optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "gpt/core/log.h"
#include "gpt/device/device.h"
#include "gpt/ops/adamw.h"

namespace gpt::optim {
namespace {

// How many moments have the parameter's size, in any state dtype. The slot of a moment's maxima is so many behind its own.
constexpr size_t kMoments = 2;

}  // namespace

std::string_view AdamW::name(const OptimizerConfig& config) {
  if (!config.fused_adamw) return "AdamW, one operator at a time";
  switch (config.state_dtype) {
    case StateDtype::float32: break;
    case StateDtype::bfloat16: return "fused AdamW with moments in bfloat16";
    case StateDtype::int8: return "8-bit AdamW optimizer";
  }
  return "fused AdamW";
}

AdamW::AdamW(const parameters::Parameters& parameters, const OptimizerConfig& config,
             const std::vector<layout::FlatSpan>& spans)
    : parameters_(parameters), config_(config) {
  for (size_t i = 0; i < parameters.rows().size(); ++i)
    TORCH_CHECK(config.fused_adamw || !parameters.rows()[i].is_trained ||
                    parameters[i].value().scalar_type() == at::kFloat,
                "AdamW: only the kernel updates values of 16 bits alone");
  const auto options = at::TensorOptions(parameters.device());
  moments_ = new_state(state_ranges(parameters.rows(), parameters.layout(), config), spans, parameters.device());
  decays_ = at::zeros({parameters.layout().trained_size / layout::kParameterAlignment}, options.dtype(at::kByte));
  for (const auto& [begin, end, decays] : layout::decay_ranges(parameters.rows(), parameters.layout()))
    if (decays)
      decays_.slice(0, begin / layout::kParameterAlignment, layout::aligned_end(end) / layout::kParameterAlignment)
          .fill_(1);
  step_count_ = at::zeros({}, options.dtype(at::kFloat));
}

void AdamW::step(const UpdateScalars& scalars) {
  at::NoGradGuard no_grad;
  if (config_.fused_adamw) {
    step_fused(scalars);
  } else if (scalars.found_inf.item<float>() == 0) {  // sync: operators that write cannot be skipped on the device
    step_by_operators(scalars);
  }
}

void AdamW::step_fused(const UpdateScalars& scalars) {
  step_count_.add_(1);
  for (const auto& [range, slots] : moments_) {
    const at::Tensor values = parameters_.values_of({range.begin, range.end});
    const bool has_master = values.scalar_type() == at::kFloat;
    const int64_t first_block = range.begin / layout::kParameterAlignment;
    ops::AdamWBuffers buffers{.values = has_master ? values : at::Tensor(),
                              .gradients = parameters_.gradients_of({range.begin, range.end}),
                              .exp_avg = slots[0],
                              .exp_avg_sq = slots[1],
                              .rounded = has_master ? parameters_.rounded_of({range.begin, range.end}) : values,
                              .decays = decays_.slice(0, first_block, range.end / layout::kParameterAlignment),
                              .first_block = first_block};
    if (range.form.dtype == StateDtype::int8)
      buffers.exp_avg_max = slots[kMoments], buffers.exp_avg_sq_max = slots[kMoments + 1];
    ops::adamw(buffers,
               {config_.beta1, config_.beta2, config_.eps, config_.weight_decay, config_.cautious_weight_decay},
               {scalars.learning_rate, scalars.decay_share, step_count_, scalars.grad_scale, scalars.found_inf});
  }
  step_count_.sub_(scalars.found_inf);  // the kernel changed nothing where it is 1
}

void AdamW::step_by_operators(const UpdateScalars& scalars) {
  const double beta1 = config_.beta1, beta2 = config_.beta2;
  const at::Tensor& gradients = parameters_.flat_gradients();
  step_count_.add_(1);
  const at::Tensor decay = scalars.decay_share * config_.weight_decay;
  const at::Tensor correction1 = 1 - at::pow(beta1, step_count_), correction2 = 1 - at::pow(beta2, step_count_);
  for (const auto& [begin, end, decays] : layout::decay_ranges(parameters_.rows(), parameters_.layout())) {
    const auto stretch = [begin, end](const at::Tensor& flat) { return flat.slice(0, begin, end); };
    const at::Tensor gradient = stretch(gradients).to(at::kFloat) / scalars.grad_scale,
                     value = stretch(parameters_.flat_values()), exp_avg = stretch(moments_[0].slots[0]),
                     exp_avg_sq = stretch(moments_[0].slots[1]);
    exp_avg.mul_(beta1).add_(gradient, 1 - beta1);
    if (decays) {
      const at::Tensor kept = 1 - scalars.learning_rate * decay;
      value.mul_(config_.cautious_weight_decay ? at::where(value * exp_avg >= 0, kept, 1.0) : kept);
    }
    exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
    const at::Tensor divisor = (exp_avg_sq / correction2).sqrt_().add_(config_.eps);
    value.sub_(exp_avg / divisor * (scalars.learning_rate / correction1));
  }
  parameters_.round_values();
}

StateBytes AdamW::bytes() const { return state_bytes(moments_); }

void AdamW::wait_for_moments() const {
  if (parameters_.device().is_cuda() && config_.offload > 0)
    device::synchronize(parameters_.device());  // sync: the host reads them
}

const std::vector<StateStretch>& AdamW::stretches() const {
  wait_for_moments();
  return moments_;
}

OptimizerState AdamW::state() const {
  return named_state(parameters_.rows(), parameters_.layout(), stretches(), step_count_);
}

void AdamW::load(const OptimizerState& from) {
  wait_for_moments();
  const bool is_converted = load_state(from, parameters_.rows(), parameters_.layout(), config_, moments_);
  step_count_.copy_(from.step_count);
  if (is_converted) log::info("AdamW's moments were of another type and have been converted");
}

}  // namespace gpt::optim
