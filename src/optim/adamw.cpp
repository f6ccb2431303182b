#include "gpt/optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>

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

// What of the ranges lies in the spans; both are in the order of the buffer.
std::vector<StateRange> within(const std::vector<FlatSpan>& spans, const std::vector<StateRange>& ranges) {
  std::vector<StateRange> parts;
  for (const auto& [begin, end] : spans) {
    for (StateRange part : ranges) {
      part.begin = std::max(part.begin, begin), part.end = std::min(part.end, end);
      if (part.begin < part.end) parts.push_back(part);
    }
  }
  return parts;
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

AdamW::AdamW(const Parameters& parameters, const OptimizerConfig& config, const std::vector<FlatSpan>& spans)
    : parameters_(parameters), config_(config) {
  TORCH_CHECK(config.fused_adamw || parameters.flat_values().scalar_type() == at::kFloat,
              "AdamW: only the kernel updates values of 16 bits alone");
  const auto options = at::TensorOptions(parameters.device());
  for (const StateRange& range : within(spans, state_ranges(parameters.rows(), parameters.layout(), config))) {
    StateStretch& moments = moments_.emplace_back(StateStretch{range, {}});
    for (const OptimizerSlot& slot : optimizer_slots(range.dtype))
      moments.slots.push_back(zeros_for(range, slot, parameters.device()));
    // What pads a block must never be its largest value.
    if (range.dtype == StateDtype::int8) {
      moments.slots[0].fill_(ops::code_of_zero(ops::MomentKind::first));
      moments.slots[1].fill_(ops::code_of_zero(ops::MomentKind::second));
    }
  }
  decays_ = at::zeros({parameters.layout().trained_size / kParameterAlignment}, options.dtype(at::kByte));
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

StateBytes AdamW::bytes() const {
  StateBytes all;
  for (const StateStretch& stretch : moments_) all.device += stretch.bytes().device, all.host += stretch.bytes().host;
  return all;
}

void AdamW::wait_for_moments() const {
  if (parameters_.device().is_cuda() && config_.offload > 0)
    synchronize(parameters_.device());  // sync: the host reads them
}

const std::vector<StateStretch>& AdamW::stretches() const {
  wait_for_moments();
  return moments_;
}

OptimizerState AdamW::state() const {
  return named_state(parameters_.rows(), parameters_.layout(), stretches(), step_count_);
}

// What of a row's moment is in the stretches, which may be parts of it.
void AdamW::load_row(size_t row, size_t moment, const ops::QuantizedMoments& from) {
  const int64_t begin = parameters_.layout().offsets[row], end = begin + parameters_.rows()[row].count();
  for (const auto& [range, slots] : moments_) {
    const int64_t first = std::max(begin, range.begin), last = std::min(end, range.end);
    if (first >= last) continue;
    const auto copy = [&](const at::Tensor& of_row, size_t slot) {
      const int64_t values = optimizer_slots(range.dtype)[slot].values, count = at::divup(last - first, values);
      slots[slot]
          .narrow(0, (first - range.begin) / values, count)
          .copy_(of_row.flatten().narrow(0, (first - begin) / values, count));
    };
    copy(from.codes, moment);
    if (from.maxima.defined()) copy(from.maxima, kMoments + moment);
  }
}

void AdamW::load(const OptimizerState& from) {
  wait_for_moments();
  std::vector<ParameterRow> rows;  // that have moments
  std::vector<size_t> places;      // among all
  for (size_t i = 0; i < parameters_.rows().size(); ++i)
    if (parameters_.rows()[i].is_trained) rows.push_back(parameters_.rows()[i]), places.push_back(i);
  bool is_converted = false;
  for (size_t moment = 0; moment < kMoments; ++moment) {
    const std::string_view name = kOptimizerSlots[moment], name_of_maxima = kOptimizerSlots[kMoments + moment];
    const std::vector<at::Tensor> tensors = tensors_of_rows(rows, from.slot(name), name);
    const std::vector<at::Tensor> maxima =
        tensors_of_rows(rows_with_maxima(rows, tensors), from.slot(name_of_maxima), name_of_maxima);
    const ops::MomentKind kind = moment == 0 ? ops::MomentKind::first : ops::MomentKind::second;
    auto next_maxima = maxima.begin();
    for (size_t row = 0; row < rows.size(); ++row) {
      const at::ScalarType type = optimizer_slots(state_dtype(rows[row], config_))[moment].dtype;
      ops::QuantizedMoments codes{tensors[row], {}};
      if (tensors[row].scalar_type() == at::kByte) codes.maxima = *next_maxima++;
      if (tensors[row].scalar_type() != type) {
        is_converted = true;
        const at::Tensor values = codes.maxima.defined() ? ops::dequantized(codes, kind) : tensors[row];
        codes = {values, {}};
        if (type == at::kByte) codes = ops::quantized(values, kind);
      }
      load_row(places[row], moment, codes);
    }
  }
  step_count_.copy_(from.step_count);
  if (is_converted) log::info("AdamW's moments were of another type and have been converted");
}

}  // namespace gpt
