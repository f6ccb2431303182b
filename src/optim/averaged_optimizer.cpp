#include "gpt/optim/averaged_optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/core/log.h"

namespace gpt::optim {
namespace {

// What exists besides, of a converted or a kept copy, is no more than this.
constexpr int64_t kValuesAtOnce = int64_t{1} << 22;

// Calls work(values, average) for one part of the stretch after the other.
template <class Work>
void for_parts(const parameters::Parameters& parameters, const StateStretch& stretch, const Work& work) {
  const auto& [range, slots] = stretch;
  const at::Tensor values = parameters.values_of({range.begin, range.end});
  for (int64_t begin = 0; begin < values.numel(); begin += kValuesAtOnce) {
    const int64_t end = std::min(begin + kValuesAtOnce, values.numel());
    work(values.slice(0, begin, end), slots.back().slice(0, begin, end));
  }
}

std::vector<StateStretch> with_averages(std::vector<StateStretch> stretches, at::Device device) {
  for (StateStretch& stretch : stretches) {
    stretch.range.form.has_average = true;
    stretch.slots.push_back(
        at::empty({stretch.range.end - stretch.range.begin}, at::TensorOptions(device).dtype(at::kFloat)));
  }
  return stretches;
}

}  // namespace

std::string AveragedOptimizer::name(const std::string& of_weights, const OptimizerConfig& config) {
  return fmt::format("{}, with averages of the weights (ema_decay {})", of_weights, config.ema_decay);
}

AveragedOptimizer::AveragedOptimizer(std::unique_ptr<Optimizer> of_weights, const parameters::Parameters& parameters,
                                     const OptimizerConfig& config)
    : of_weights_(std::move(of_weights)),
      parameters_(parameters),
      config_(config),
      stretches_(with_averages(of_weights_->stretches(), parameters.device())),
      rate_(at::zeros({}, at::TensorOptions(parameters.device()).dtype(at::kFloat))) {
  begin();
}

void AveragedOptimizer::begin() const {
  const at::NoGradGuard no_grad;
  for (const StateStretch& stretch : stretches_)
    for_parts(parameters_, stretch, [](const at::Tensor& values, const at::Tensor& average) { average.copy_(values); });
}

void AveragedOptimizer::set_progress(double share_done) {
  const double rate = share_done <= config_.average_after ? 1 : 1 - config_.ema_decay;
  if (known_rate_ != rate) rate_.fill_(rate);
  known_rate_ = rate;
}

void AveragedOptimizer::step(const UpdateScalars& scalars) {
  const at::NoGradGuard no_grad;
  of_weights_->step(scalars);
  const at::Tensor rate = rate_ * (1 - scalars.found_inf);  // so that nothing is read
  for (const StateStretch& stretch : stretches_)
    for_parts(parameters_, stretch, [&rate](const at::Tensor& values, const at::Tensor& average) {
      at::Tensor(average).lerp_(values.to(at::kFloat), rate);
    });
}

void AveragedOptimizer::swap() const {
  const at::NoGradGuard no_grad;
  for (const StateStretch& stretch : stretches_)
    for_parts(parameters_, stretch, [](const at::Tensor& values, const at::Tensor& average) {
      TORCH_CHECK(values.scalar_type() == at::kFloat, "AveragedOptimizer: values of 16 bits cannot be averages");
      const at::Tensor kept = values.clone();
      values.copy_(average);
      average.copy_(kept);
    });
}

const std::vector<StateStretch>& AveragedOptimizer::stretches() const {
  (void)of_weights_->stretches();  // waits until the host may touch them
  return stretches_;
}

OptimizerState AveragedOptimizer::state() const {
  return named_state(parameters_.rows(), parameters_.layout(), stretches(), step_count());
}

void AveragedOptimizer::load(const OptimizerState& from) {
  OptimizerState of_weights = from;
  std::erase_if(of_weights.slots, [](const auto& slot) { return slot.first == kAverageSlot; });
  of_weights_->load(of_weights);
  if (!from.slot(kAverageSlot).empty()) {
    load_slot(kAverageSlot, from, parameters_.rows(), parameters_.layout(), config_, stretches_);
    return;
  }
  begin();
  if (!stretches_.empty()) log::info("The checkpoint has no averages of the weights: they begin with its weights");
}

AveragedOptimizer* averages_of(Optimizer& optimizer) { return dynamic_cast<AveragedOptimizer*>(&optimizer); }

}  // namespace gpt::optim
