#include "gpt/optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "gpt/core/log.h"
#include "gpt/device/device.h"
#include "gpt/device/memory.h"
#include "gpt/ops/adamw.h"
#include "gpt/ops/moments.h"

namespace gpt {
namespace {

// How many moments have the parameter's size, in any state dtype. The slot of a moment's maxima is so many behind its own.
constexpr size_t kMoments = 2;

// The rows whose tensor is one of codes, with the shape of its maxima.
std::vector<ParameterRow> rows_with_maxima(const std::vector<ParameterRow>& rows, const std::vector<at::Tensor>& from) {
  const OptimizerSlot& maxima = optimizer_slots(StateDtype::int8)[kMoments];
  std::vector<ParameterRow> result;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (from[i].scalar_type() != at::kByte) continue;
    result.push_back(rows[i]);
    result.back().shape = maxima.shape(rows[i]);
  }
  return result;
}

at::Tensor zeros_for(const StateRange& range, const OptimizerSlot& slot, at::Device device) {
  const int64_t count = (range.end - range.begin) / slot.values;
  return range.is_on_host ? zeros_on_host(count, slot.dtype, device)
                          : at::zeros({count}, at::TensorOptions(device).dtype(slot.dtype));
}

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

AdamW::AdamW(const Parameters& parameters, const OptimizerConfig& config) : parameters_(parameters), config_(config) {
  TORCH_CHECK(config.fused_adamw || parameters.flat_values().scalar_type() == at::kFloat,
              "AdamW: only the kernel updates values of 16 bits alone");
  const auto options = at::TensorOptions(parameters.device());
  for (const StateRange& range : state_ranges(parameters.rows(), parameters.layout(), config)) {
    Moments& moments = moments_.emplace_back(Moments{range, {}});
    for (const OptimizerSlot& slot : optimizer_slots(range.dtype))
      moments.slots.push_back(zeros_for(range, slot, parameters.device()));
    // What pads a block must never be its largest value.
    if (range.dtype == StateDtype::int8) {
      moments.slots[0].fill_(ops::code_of_zero(ops::MomentKind::first));
      moments.slots[1].fill_(ops::code_of_zero(ops::MomentKind::second));
    }
  }
  decays_ = at::zeros({parameters.layout().size / kParameterAlignment}, options.dtype(at::kByte));
  for (const auto& [begin, end, decays] : decay_ranges(parameters.rows(), parameters.layout()))
    if (decays) decays_.slice(0, begin / kParameterAlignment, aligned_end(end) / kParameterAlignment).fill_(1);
  step_count_ = at::zeros({}, options.dtype(at::kFloat));
}

void AdamW::step(const at::Tensor& learning_rate, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  at::NoGradGuard no_grad;
  if (config_.fused_adamw) {
    step_fused(learning_rate, grad_scale, found_inf);
  } else if (found_inf.item<float>() == 0) {  // sync: operators that write cannot be skipped on the device
    step_by_operators(learning_rate, grad_scale);
  }
}

void AdamW::step_fused(const at::Tensor& learning_rate, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  const at::Tensor& gradients = parameters_.flat_gradients();
  step_count_.add_(1);
  for (const auto& [range, slots] : moments_) {
    const auto part = [&range](const at::Tensor& flat, int64_t values = 1) {
      return flat.defined() ? flat.slice(0, range.begin / values, range.end / values) : flat;
    };
    const at::Tensor values = part(parameters_.flat_values());
    const bool has_master = values.scalar_type() == at::kFloat;
    ops::AdamWBuffers buffers{.values = has_master ? values : at::Tensor(),
                              .gradients = part(gradients),
                              .exp_avg = slots[0],
                              .exp_avg_sq = slots[1],
                              .rounded = has_master ? part(parameters_.flat_rounded()) : values,
                              .decays = part(decays_, kParameterAlignment),
                              .first_block = range.begin / kParameterAlignment};
    if (range.dtype == StateDtype::int8)
      buffers.exp_avg_max = slots[kMoments], buffers.exp_avg_sq_max = slots[kMoments + 1];
    ops::adamw(buffers, {config_.beta1, config_.beta2, config_.eps, config_.weight_decay},
               {learning_rate, step_count_, grad_scale, found_inf});
  }
  step_count_.sub_(found_inf);  // the kernel changed nothing where it is 1
}

void AdamW::step_by_operators(const at::Tensor& learning_rate, const at::Tensor& grad_scale) {
  const double beta1 = config_.beta1, beta2 = config_.beta2;
  const at::Tensor& gradients = parameters_.flat_gradients();
  step_count_.add_(1);
  const at::Tensor correction1 = 1 - at::pow(beta1, step_count_), correction2 = 1 - at::pow(beta2, step_count_);
  for (const auto& [begin, end, decays] : decay_ranges(parameters_.rows(), parameters_.layout())) {
    const auto stretch = [begin, end](const at::Tensor& flat) { return flat.slice(0, begin, end); };
    const at::Tensor gradient = stretch(gradients).to(at::kFloat) / grad_scale,
                     value = stretch(parameters_.flat_values()), exp_avg = stretch(moments_[0].slots[0]),
                     exp_avg_sq = stretch(moments_[0].slots[1]);
    value.mul_(1 - learning_rate * (decays ? config_.weight_decay : 0));
    exp_avg.mul_(beta1).add_(gradient, 1 - beta1);
    exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
    const at::Tensor divisor = (exp_avg_sq / correction2).sqrt_().add_(config_.eps);
    value.sub_(exp_avg / divisor * (learning_rate / correction1));
  }
  parameters_.round_values();
}

const AdamW::Moments& AdamW::moments_of(size_t row) const {
  const int64_t offset = parameters_.layout().offsets[row];
  for (const Moments& moments : moments_)
    if (offset < moments.range.end) return moments;
  TORCH_CHECK(false, "AdamW: no state at ", offset);
}

std::vector<at::Tensor> AdamW::slots_of(size_t row) const {
  const auto& [range, tensors] = moments_of(row);
  const ParameterRow& parameter = parameters_.rows()[row];
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const OptimizerSlot& slot = optimizer_slots(range.dtype)[i];
    const std::vector<int64_t> shape = slot.shape(parameter);
    const int64_t begin = (parameters_.layout().offsets[row] - range.begin) / slot.values;
    result.push_back(tensors[i].narrow(0, begin, c10::multiply_integers(shape)).view(shape));
  }
  return result;
}

StateBytes AdamW::bytes() const { return state_bytes(parameters_.rows(), parameters_.layout(), config_); }

void AdamW::wait_for_moments() const {
  if (parameters_.device().is_cuda() && config_.offload > 0)
    synchronize(parameters_.device());  // sync: the host reads them
}

OptimizerState AdamW::state() const {
  wait_for_moments();
  OptimizerState state;
  for (size_t row = 0; row < parameters_.rows().size(); ++row) {
    const std::vector<at::Tensor> tensors = slots_of(row);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const OptimizerSlot& slot = optimizer_slots(moments_of(row).range.dtype)[i];
      state.slot(slot.name).emplace_back(parameters_.rows()[row].name, tensors[i]);
    }
  }
  state.step_count = step_count_;
  return state;
}

void AdamW::load(const OptimizerState& from) {
  wait_for_moments();
  const std::vector<ParameterRow>& rows = parameters_.rows();
  bool is_converted = false;
  for (size_t moment = 0; moment < kMoments; ++moment) {
    const std::string_view name = kOptimizerSlots[moment], name_of_maxima = kOptimizerSlots[kMoments + moment];
    const std::vector<at::Tensor> tensors = tensors_of_rows(rows, from.slot(name), name);
    const std::vector<at::Tensor> maxima =
        tensors_of_rows(rows_with_maxima(rows, tensors), from.slot(name_of_maxima), name_of_maxima);
    const ops::MomentKind kind = moment == 0 ? ops::MomentKind::first : ops::MomentKind::second;
    auto next_maxima = maxima.begin();
    for (size_t row = 0; row < rows.size(); ++row) {
      const std::vector<at::Tensor> to = slots_of(row);
      ops::QuantizedMoments codes{tensors[row], {}};
      if (tensors[row].scalar_type() == at::kByte) codes.maxima = *next_maxima++;
      if (tensors[row].scalar_type() != to[moment].scalar_type()) {
        is_converted = true;
        const at::Tensor values = codes.maxima.defined() ? ops::dequantized(codes, kind) : tensors[row];
        codes = {values, {}};
        if (to[moment].scalar_type() == at::kByte) codes = ops::quantized(values, kind);
      }
      to[moment].copy_(codes.codes);
      if (codes.maxima.defined()) to[kMoments + moment].copy_(codes.maxima);
    }
  }
  step_count_.copy_(from.step_count);
  if (is_converted) log::info("AdamW's moments were of another type and have been converted");
}

}  // namespace gpt
