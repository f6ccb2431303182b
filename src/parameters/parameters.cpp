#include "gpt/parameters/parameters.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "gpt/device/memory.h"
#include "without_data.h"

namespace gpt::parameters {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Track : torch::autograd::Function<Track> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value, const Parameter& parameter) {
    context->saved_data["parameter"] = parameter.to_capsule();
    return value;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    Parameter::from_capsule(context->saved_data["parameter"]).add_to_gradient(gradients[0]);
    return {at::Tensor(), at::Tensor()};
  }
};

// A tensor of its own over a stretch of `flat`. Autograd does not know that they share memory: each parameter is a leaf, and
// autocast caches its 16-bit copy, which it does not do for views.
at::Tensor stretch(const at::Tensor& flat, int64_t offset, at::IntArrayRef shape) {
  return flat.detach().narrow(0, offset, c10::multiply_integers(shape)).view(shape).detach();
}

void clear_padding(const at::Tensor& flat, int64_t end) {
  flat.detach().slice(0, end, layout::aligned_end(end)).zero_();
}

}  // namespace

const at::Tensor& FlatGradients::buffer(size_t lane) {
  TORCH_CHECK(!is_divided(), "FlatGradients: those that are divided are never whole");
  if (lane >= buffers_.size()) buffers_.resize(lane + 1);
  at::Tensor& buffer = buffers_[lane];
  if (!buffer.defined()) buffer = at::empty({size_}, options_);
  return buffer;
}

std::pair<at::Tensor, int64_t> FlatGradients::memory_at(int64_t offset) {
  if (!is_divided()) return {buffer(), 0};
  const auto i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
  const auto [begin, end] = span_of(i);
  if (!segments_[i].defined()) segments_[i] = at::empty({end - begin}, options_);
  return {segments_[i], begin};
}

void FlatGradients::divide(std::vector<int64_t> ends) {
  TORCH_CHECK(std::is_sorted(ends.begin(), ends.end()) && !ends.empty() && ends.back() == size_,
              "FlatGradients: segments must end one after the other, the last one at ", size_);
  ends_ = std::move(ends);
  segments_.assign(ends_.size(), at::Tensor());
  buffers_.assign(1, at::Tensor());
}

Parameter::Parameter(at::Tensor value, at::Tensor rounded, c10::intrusive_ptr<FlatGradients> gradients, int64_t offset,
                     bool is_trained)
    : state_(c10::make_intrusive<State>()) {
  state_->value = std::move(value).requires_grad_(is_trained);
  if (rounded.defined()) state_->rounded = std::move(rounded).requires_grad_(is_trained);
  state_->gradients = std::move(gradients);
  state_->offset = offset;
}

Parameter::Parameter(const at::Tensor& value)
    : Parameter(value, at::Tensor(), c10::make_intrusive<FlatGradients>(value.numel(), value.options()), 0) {}

Parameter Parameter::narrow(at::Tensor shaped) {
  Parameter parameter(std::move(shaped), at::Tensor(), c10::make_intrusive<FlatGradients>(0, at::TensorOptions()), 0,
                      /*is_trained=*/false);
  parameter.state_->is_narrow = true;
  return parameter;
}

Parameter::Lane& Parameter::lane() const {
  const size_t lane = state_->gradients->lane();
  if (lane >= state_->lanes.size()) state_->lanes.resize(lane + 1);
  return state_->lanes[lane];
}

const at::Tensor& Parameter::gradient() const {
  TORCH_CHECK(is_trained(), "Parameter: one that is not trained has no gradient");
  at::Tensor& gradient = lane().gradient;
  if (!gradient.defined()) {
    const auto [flat, begin] = state_->gradients->memory_at(state_->offset);
    gradient = stretch(flat, state_->offset - begin, value().sizes());
    clear_padding(flat, state_->offset - begin + value().numel());
  }
  return gradient;
}

Parameter Parameter::from_capsule(const c10::IValue& capsule) {
  Parameter parameter;
  parameter.state_ = c10::static_intrusive_pointer_cast<State>(capsule.toCapsule());
  return parameter;
}

at::Tensor Parameter::tracked() const {
  if (!defined()) return {};
  if (is_narrow()) return product_value();
  return at::GradMode::is_enabled() ? Track::apply(compute_value(), *this) : compute_value();
}

void Parameter::add_to_gradient(const at::Tensor& contribution) const {
  if (begin_contribution()) {
    gradient().add_(contribution);
  } else {
    gradient().copy_(contribution);
  }
}

Parameters::Parameters(std::vector<layout::ParameterRow> rows, at::Device device, const ParameterTypes& types,
                       std::optional<ValueDivision> division)
    : rows_(std::move(rows)),
      layout_(layout::flat_layout(rows_)),
      flat_gradients_(
          c10::make_intrusive<FlatGradients>(layout_.trained_size, at::TensorOptions(device).dtype(types.gradient))) {
  if (!division) {
    make_whole(device, types);
    return;
  }
  divided_values_ = std::make_shared<DividedValues>(rows_, layout_, types, device, std::move(*division));
  for (size_t i = 0; i < rows_.size(); ++i) {
    const at::Tensor copy = divided_values_->has_copies() ? divided_values_->rounded(i) : at::Tensor();
    parameters_.emplace_back(divided_values_->value(i), copy, flat_gradients_, layout_.offsets[i]);
  }
}

void Parameters::make_whole(at::Device device, const ParameterTypes& types) {
  const auto options = at::TensorOptions(device);
  const bool has_copies = types.compute != at::kFloat && types.has_master;
  const int64_t trained = layout_.trained_size;
  flat_values_ = at::empty({has_copies ? trained : layout_.size}, options.dtype(types.kept()));
  if (has_copies) flat_rounded_ = at::empty({layout_.size}, options.dtype(types.compute));
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].is_narrow()) {
      const at::Tensor shaped = without_data(rows_[i].count(), options.dtype(types.compute));
      parameters_.push_back(Parameter::narrow(shaped.view(rows_[i].shape)));
      continue;
    }
    const bool is_trained = rows_[i].is_trained, has_copy = has_copies && is_trained;
    const at::Tensor& kept = has_copies && !is_trained ? flat_rounded_ : flat_values_;
    const auto part = [&](const at::Tensor& flat) { return stretch(flat, layout_.offsets[i], rows_[i].shape); };
    parameters_.emplace_back(part(kept), has_copy ? part(flat_rounded_) : at::Tensor(), flat_gradients_,
                             layout_.offsets[i], is_trained);
    clear_padding(kept, layout_.offsets[i] + rows_[i].count());
  }
}

Parameters::Parameters(std::vector<layout::ParameterRow> rows, const std::vector<at::Tensor>& values)
    : rows_(std::move(rows)),
      layout_(layout::flat_layout(rows_)),
      flat_gradients_(c10::make_intrusive<FlatGradients>(0, at::TensorOptions())) {
  TORCH_CHECK(!rows_.empty() && rows_.size() == values.size(), "Parameters: ", values.size(), " values for ",
              rows_.size(), " rows");
  flat_values_ = at::empty({0}, values[0].options());
  for (size_t i = 0; i < rows_.size(); ++i) {
    rows_[i].is_trained = false;
    parameters_.emplace_back(values[i], at::Tensor(), flat_gradients_, 0, /*is_trained=*/false);
  }
}

void Parameters::draw(uint64_t seed, const std::vector<layout::ParameterRow>& of_model) {
  at::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const layout::ParameterRow& row : of_model) {
    const layout::InitialValue& initial = row.initial;
    const auto i =
        static_cast<size_t>(std::find_if(rows_.begin(), rows_.end(),
                                         [&row](const layout::ParameterRow& own) { return own.name == row.name; }) -
                            rows_.begin());
    const bool is_here = i < rows_.size(), is_drawn_in_place = is_here && !divided_values_ && !rows_[i].cut &&
                                                               !rows_[i].is_narrow() &&
                                                               parameters_[i].value().is_cpu() &&
                                                               parameters_[i].value().scalar_type() == at::kFloat;
    const at::Tensor host =
        is_drawn_in_place ? parameters_[i].value().detach() : at::empty(row.whole_shape(), at::kFloat);
    host.fill_(initial.constant);
    if (initial.normal_std > 0)
      host.narrow(0, 0, host.size(0) - initial.padding_rows).normal_(0, initial.normal_std, generator);
    if (is_here && !is_drawn_in_place) set(i, part_of(rows_[i], host));
  }
  round_values();
}

void Parameters::copy_from(NamedTensors values, const FrozenMatrices& packed) {
  constexpr int64_t kReleasedAtOnce = int64_t{64}
                                      << 20;  // bytes: each time all gaps of the allocator are looked through
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors = tensors_of_rows(rows_, values, "model");
  values.clear();
  int64_t given_up = 0;  // bytes, since the allocator gave back what is free
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (const auto found = packed.find(rows_[i].name); rows_[i].is_narrow() && found != packed.end()) {
      parameters_[i].set_frozen(found->second);
    } else {
      TORCH_CHECK(!rows_[i].is_narrow() || tensors[i].numel() == 1 || tensors[i].stride(-1) != 0, "Parameters: '",
                  rows_[i].name, "' was packed, and zeros stand for it");
      set(i, part_of(rows_[i], tensors[i]));
    }
    given_up += static_cast<int64_t>(tensors[i].nbytes());
    tensors[i].reset();
    if (given_up >= kReleasedAtOnce) device::release_unused_memory(at::kCPU), given_up = 0;
  }
  round_values();
}

void Parameters::set(size_t row, const at::Tensor& value) {
  if (rows_[row].is_narrow()) return parameters_[row].set_frozen(FrozenMatrix(value, rows_[row].kept));
  divided_values_ ? divided_values_->set(row, value) : (void)parameters_[row].value().detach().copy_(value);
}

at::Tensor Parameters::values_of(layout::FlatSpan span) const {
  return divided_values_ ? divided_values_->own_of(span) : flat_values_.slice(0, span.begin, span.end);
}

at::Tensor Parameters::rounded_of(layout::FlatSpan span) const {
  if (divided_values_) return divided_values_->rounded_of(span);
  return flat_rounded_.defined() ? flat_rounded_.slice(0, span.begin, span.end) : at::Tensor();
}

int64_t Parameters::value_bytes() const {
  if (divided_values_) return divided_values_->bytes();
  auto bytes = static_cast<int64_t>(flat_values_.nbytes() + (flat_rounded_.defined() ? flat_rounded_.nbytes() : 0));
  for (const Parameter& parameter : parameters_)
    if (parameter.is_narrow()) bytes += parameter.frozen().bytes();
  return bytes;
}

void Parameters::round_values(layout::FlatSpan span) const {
  at::NoGradGuard no_grad;
  if (!flat_rounded_.defined()) return;
  flat_rounded_.slice(0, span.begin, span.end).copy_(flat_values_.slice(0, span.begin, span.end));
}

std::vector<at::Tensor> Parameters::kept_values() const {
  std::vector<at::Tensor> kept{flat_values_};
  if (flat_rounded_.defined()) kept.push_back(flat_rounded_.slice(0, layout_.trained_size));
  for (const Parameter& parameter : parameters_)
    if (parameter.is_narrow())
      for (const at::Tensor& part : parameter.frozen().tensors()) kept.push_back(part);
  return kept;
}

Parameter Parameters::find(layout::ParameterRole role, int64_t layer, bool is_bias) const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const layout::ParameterRow& row = rows_[i];
    if (row.role == role && row.layer == layer && row.is_bias == is_bias && !row.adapter) return parameters_[i];
  }
  return {};
}

NamedTensors Parameters::values() const {
  NamedTensors result;
  for (size_t i = 0; i < rows_.size(); ++i) result.emplace_back(rows_[i].name, parameters_[i].value());
  return result;
}

NamedTensors Parameters::gradients() const {
  NamedTensors result;
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].is_trained) result.emplace_back(rows_[i].name, parameters_[i].gradient());
  return result;
}

void Parameters::require_gradient(size_t row) const {
  TORCH_CHECK(!rows_[row].is_trained || parameters_[row].has_gradient(), "Parameters: '", rows_[row].name,
              "' has no gradient");
}

const at::Tensor& Parameters::flat_gradients() const {
  for (size_t i = 0; i < rows_.size(); ++i) require_gradient(i);
  return flat_gradients_->buffer();
}

std::vector<size_t> Parameters::rows_in(size_t segment) const {
  const auto [begin, end] = flat_gradients_->span_of(segment);
  std::vector<size_t> rows;
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].is_trained && begin <= layout_.offsets[i] && layout_.offsets[i] < end) rows.push_back(i);
  return rows;
}

bool Parameters::has_gradients(size_t segment) const {
  const std::vector<size_t> rows = rows_in(segment);
  return std::all_of(rows.begin(), rows.end(), [this](size_t row) { return parameters_[row].has_gradient(); });
}

at::Tensor Parameters::take_gradients(size_t segment) const {
  const std::vector<size_t> rows = rows_in(segment);
  for (const size_t row : rows) require_gradient(row);
  for (const size_t row : rows) parameters_[row].release_gradient();
  return flat_gradients_->take(segment);
}

at::Tensor Parameters::gradients_of(layout::FlatSpan span) const {
  if (!flat_gradients_->is_divided()) return flat_gradients().slice(0, span.begin, span.end);
  for (const auto& [of, values] : flat_gradients_->sums())
    if (of.begin <= span.begin && span.end <= of.end)
      return values.slice(0, span.begin - of.begin, span.end - of.begin);
  TORCH_CHECK(false, "Parameters: no sum of the gradients from ", span.begin, " to ", span.end);
}

void Parameters::clear_gradients() const {
  for (const Parameter& parameter : parameters_)
    flat_gradients_->is_divided() ? parameter.release_gradient() : parameter.clear_gradient();
  flat_gradients_->drop_segments();
}

void Parameters::mark_gradients() const {
  for (const Parameter& parameter : parameters_) (void)parameter.begin_contribution();
}

}  // namespace gpt::parameters
