// The memory of a model's parameters: one flat buffer of values and one of gradients, with a named view for each row of the
// parameter table, and, where the model computes in 16 bits, one of rounded copies, which may take the place of the values.
// Everything that treats all parameters alike (clipping, the optimizer, the scaler) works on the buffers; everything that treats
// them one by one (the model, checkpoints) on the views.
//
// Gradients keep their memory from step to step; it is allocated by the first backward pass, so that inference needs none.
// Operators add to them inside their backward pass: the first contribution after clear_gradients() overwrites what is there,
// later ones add to it, so that clearing touches no memory.
// Padding between parameters is zero in both buffers. Copies of these objects share the memory.
// Parameters that are not trained lie behind all others, without gradients and without float32 values beside a copy of 16 bits.
// There may be several buffers of gradients, lanes, of which one is in use at a time: partial sums that are added at the end of an update.
// Or no buffer at all: divided gradients exist in segments, each until it is taken away, and what is kept of them are sums of some spans.
// Matrices that are kept in few bits (frozen_matrix.h) lie in none of these buffers.
// Values may be divided as well (divided_values.h); there is no flat buffer of them then.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/layout/parameter_table.h"
#include "gpt/parameters/divided_values.h"
#include "gpt/parameters/frozen_matrix.h"
#include "gpt/parameters/named_tensors.h"
#include "gpt/parameters/parameter_types.h"

namespace gpt::parameters {

// The sum of the gradients of a span of the flat buffer, over micro-batches and processes.
struct GradientSum {
  layout::FlatSpan span;
  at::Tensor values;  // (end - begin)
};

// The lanes, each a buffer that is allocated when it is first asked for; or segments, and sums.
class FlatGradients : public c10::intrusive_ptr_target {
 public:
  FlatGradients(int64_t size, const at::TensorOptions& options) : size_(size), options_(options), buffers_(1) {}
  const at::Tensor& buffer() { return buffer(lane_); }  // (size) of the lane in use, not initialized
  const at::Tensor& buffer(size_t lane);                // throws c10::Error where gradients are divided
  // The memory that holds the gradient at `offset`, not initialized, and where in the flat buffer it begins.
  std::pair<at::Tensor, int64_t> memory_at(int64_t offset);
  at::ScalarType type() const { return options_.dtype().toScalarType(); }
  size_t lane() const { return lane_; }
  void use_lane(size_t lane) { lane_ = lane; }

  void divide(std::vector<int64_t> ends);
  bool is_divided() const { return !ends_.empty(); }
  const std::vector<int64_t>& ends() const { return ends_; }
  layout::FlatSpan span_of(size_t segment) const { return {segment == 0 ? 0 : ends_[segment - 1], ends_[segment]}; }
  at::Tensor take(size_t segment) { return std::exchange(segments_[segment], at::Tensor()); }
  void drop_segments() { segments_.assign(ends_.size(), at::Tensor()); }
  const std::vector<GradientSum>& sums() const { return sums_; }
  void set_sums(std::vector<GradientSum> sums) { sums_ = std::move(sums); }

 private:
  int64_t size_;
  at::TensorOptions options_;
  std::vector<at::Tensor> buffers_;
  size_t lane_ = 0;
  std::vector<int64_t> ends_;         // of the segments; none: not divided
  std::vector<at::Tensor> segments_;  // undefined from when they are taken until somebody contributes
  std::vector<GradientSum> sums_;
};

// One parameter, shared by the model that uses it and the buffers it lies in. Cheap to copy; may be empty.
class Parameter {
 public:
  Parameter() = default;
  // `value` gets its gradient at `offset` of `gradients`. `rounded`: its 16-bit copy, or undefined. `is_trained` as in ParameterRow.
  Parameter(at::Tensor value, at::Tensor rounded, c10::intrusive_ptr<FlatGradients> gradients, int64_t offset,
            bool is_trained = true);
  explicit Parameter(const at::Tensor& value);  // with a gradient of its own
  // One that is kept in few bits, which set_frozen() gives it. `shaped`: a tensor without data, of its shape and of the type to compute with.
  static Parameter narrow(at::Tensor shaped);

  bool defined() const { return state_.defined(); }
  // Whether it has a gradient, which operators must compute.
  bool is_trained() const { return defined() && state_->value.requires_grad(); }
  // A leaf of autograd, of float32, or of 16 bits where there is no master copy.
  const at::Tensor& value() const { return state_->value; }
  // What the model computes with: the 16-bit copy, or without one the value itself.
  const at::Tensor& compute_value() const { return state_->rounded.defined() ? state_->rounded : state_->value; }
  // Whether it is kept in few bits: value() and compute_value() then have its shape and no data.
  bool is_narrow() const { return state_->is_narrow; }
  const FrozenMatrix& frozen() const { return state_->frozen; }
  void set_frozen(FrozenMatrix matrix) const { state_->frozen = std::move(matrix); }
  // compute_value(), or of what is narrow all values, in memory of their own, of the type `unpacked` of those that it is multiplied by.
  at::Tensor product_value(at::ScalarType unpacked) const {
    return is_narrow() ? frozen().unpacked(unpacked) : compute_value();
  }
  at::Tensor product_value() const { return product_value(compute_value().scalar_type()); }
  const at::Tensor& gradient() const;  // has the value's shape; meaningful where has_gradient()
  at::ScalarType gradient_type() const { return state_->gradients->type(); }
  bool has_gradient() const { return lane().has_gradient; }
  void clear_gradient() const { lane().has_gradient = false; }
  void release_gradient() const { lane() = {}; }  // its memory too; the next contribution finds another

  // compute_value() for an ordinary ATen operator: what autograd then finds as its gradient is added to gradient(). An empty
  // parameter gives an undefined tensor.
  at::Tensor tracked() const;

  // For an operator that writes gradient() itself: whether it must add to what is there (beta = 1) or overwrite it (beta = 0).
  bool begin_contribution() const { return std::exchange(lane().has_gradient, true); }
  void add_to_gradient(const at::Tensor& contribution) const;  // the contribution may have any dtype

  // For an autograd function, which saves what its backward pass needs as an IValue.
  c10::IValue to_capsule() const { return c10::IValue::make_capsule(state_); }
  static Parameter from_capsule(const c10::IValue& capsule);

 private:
  struct Lane {
    at::Tensor gradient;
    bool has_gradient = false;
  };
  struct State : torch::CustomClassHolder {
    at::Tensor value, rounded;
    bool is_narrow = false;
    FrozenMatrix frozen;
    c10::intrusive_ptr<FlatGradients> gradients;
    int64_t offset = 0;
    std::vector<Lane> lanes = std::vector<Lane>(1);
  };
  Lane& lane() const;
  c10::intrusive_ptr<State> state_;
};

// What autograd is told that an operator adds gradients to.
inline std::optional<at::Tensor> trained_value(const Parameter& parameter) {
  return parameter.is_trained() ? std::optional(parameter.value()) : std::nullopt;
}

class Parameters {
 public:
  // The values are not set: draw() or copy_from() follows. `division`: what this process keeps of them; nothing: all.
  Parameters(std::vector<layout::ParameterRow> rows, at::Device device, const ParameterTypes& types = {},
             std::optional<ValueDivision> division = std::nullopt);
  // Parameters to compute with, not to train: the values are these tensors, one for each row, in whatever form the operators read them. The
  // flat buffers are empty.
  Parameters(std::vector<layout::ParameterRow> rows, const std::vector<at::Tensor>& values);

  // Initial values, drawn on the CPU, so that they are the same on every device. Where rows are cut, they are drawn whole.
  void draw(uint64_t seed) { draw(seed, rows_); }
  // The same where these are some of a model's rows, all of which are drawn in their order.
  void draw(uint64_t seed, const std::vector<layout::ParameterRow>& of_model);
  // Whole tensors, each given up as soon as it is copied: its memory is free then where the caller has moved it here. Throws
  // gpt::Error(checkpoint), as tensors_of_rows() does. `packed`: those that are narrow, where they are packed already.
  void copy_from(NamedTensors values, const FrozenMatrices& packed = {});

  const std::vector<layout::ParameterRow>& rows() const { return rows_; }
  const layout::FlatLayout& layout() const { return layout_; }
  at::Device device() const { return parameters_[0].value().device(); }
  int64_t count() const { return layout::parameter_count(rows_); }  // how many values, without padding

  const Parameter& operator[](size_t row) const { return parameters_[row]; }
  // Empty where the model has none.
  Parameter weight(layout::ParameterRole role, int64_t layer) const { return find(role, layer, /*is_bias=*/false); }
  Parameter bias(layout::ParameterRole role, int64_t layer) const { return find(role, layer, /*is_bias=*/true); }
  NamedTensors values() const;     // most of them without data where they are divided, and those that are narrow
  NamedTensors gradients() const;  // of those that are trained

  const std::shared_ptr<DividedValues>& divided_values() const { return divided_values_; }  // null: they are whole
  // What an update of this span changes: its values, as they are kept; and copies of 16 bits beside them, undefined where they are made
  // later or not at all.
  at::Tensor values_of(layout::FlatSpan span) const;
  at::Tensor rounded_of(layout::FlatSpan span) const;
  int64_t value_bytes() const;  // of values and copies, in this process

  // (layout().size) float32; of the compute type where there is no master. Beside copies of 16 bits (layout().trained_size). Undefined where
  // values are divided.
  const at::Tensor& flat_values() const { return flat_values_; }
  // (layout().size) of the compute type: copies beside a master, otherwise undefined. After a change of the values call
  // round_values().
  const at::Tensor& flat_rounded() const { return flat_rounded_; }
  void round_values() const { round_values({0, layout_.trained_size}); }
  void round_values(layout::FlatSpan span) const;
  // What all other values follow from: those, of the copies what is not trained, and what is narrow.
  std::vector<at::Tensor> kept_values() const;
  // (layout().trained_size). Throws c10::Error when a parameter has had no contribution since clear_gradients().
  const at::Tensor& flat_gradients() const;
  // The buffer of a lane, of whose parameters some may have had none.
  const at::Tensor& gradient_buffer(size_t lane) const { return flat_gradients_->buffer(lane); }
  void clear_gradients() const;
  void mark_gradients() const;  // as contributed to: by operators whose work was replayed without them
  // From now on gradients exist only in segments of the flat buffer, the first of which begins at 0, and each of which ends where the next
  // one begins: from the first contribution to one of its parameters on until it is taken. There are no lanes then.
  void divide_gradients(std::vector<int64_t> ends) const { flat_gradients_->divide(std::move(ends)); }
  const std::vector<int64_t>& segment_ends() const { return flat_gradients_->ends(); }  // none: they are not divided
  bool has_gradients(size_t segment) const;  // each of its parameters has had a contribution
  // A segment, (its length). Throws c10::Error where one of its parameters has had none.
  at::Tensor take_gradients(size_t segment) const;
  void set_gradient_sums(std::vector<GradientSum> sums) const { flat_gradients_->set_sums(std::move(sums)); }
  // What an update of this span follows from: the gradients as flat_gradients() has them, or where they are divided, the sum that has been
  // set of a span around it. Throws c10::Error where there is none.
  at::Tensor gradients_of(layout::FlatSpan span) const;
  // All that is said of gradients is about the lane in use, which is the first until another is chosen.
  void use_lane(size_t lane) const { flat_gradients_->use_lane(lane); }
  size_t lane() const { return flat_gradients_->lane(); }

 private:
  Parameter find(layout::ParameterRole role, int64_t layer, bool is_bias) const;
  void make_whole(at::Device device, const ParameterTypes& types);
  void set(size_t row, const at::Tensor& value);
  std::vector<size_t> rows_in(size_t segment) const;  // that are trained
  void require_gradient(size_t row) const;            // throws c10::Error where a trained one has none

  std::vector<layout::ParameterRow> rows_;
  layout::FlatLayout layout_;
  at::Tensor flat_values_, flat_rounded_;
  std::shared_ptr<DividedValues> divided_values_;
  c10::intrusive_ptr<FlatGradients> flat_gradients_;
  std::vector<Parameter> parameters_;  // one for each row
};

}  // namespace gpt::parameters
