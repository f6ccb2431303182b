#include "parts.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gpt/optim/optimizer_state.h"

namespace gpt::checkpoint {
namespace {

constexpr std::array kTensorTypes = {
    TensorType{at::kFloat, "float32", "FloatStorage"},
    TensorType{at::kDouble, "float64", "DoubleStorage"},
    TensorType{at::kBFloat16, "bfloat16", "BFloat16Storage"},
    TensorType{at::kHalf, "float16", "HalfStorage"},
    TensorType{at::kByte, "uint8", "ByteStorage"},
    TensorType{at::kChar, "int8", "CharStorage"},
    TensorType{at::kInt, "int32", "IntStorage"},
    TensorType{at::kLong, "int64", "LongStorage"},
};

// What a checkpoint consists of, stated once for writing (a const Checkpoint) and reading: `visit` is called with the name and the place
// of every tensor, of a group of tensors whose records are named GROUP/NAME, or of the optimizer's groups, which are its slots.
template <typename AnyCheckpoint, typename Visitor>
void visit_tensors(AnyCheckpoint& checkpoint, Visitor&& visit) {
  visit("model", checkpoint.model);
  visit("optimizer", checkpoint.optimizer);
  visit("rng", checkpoint.rng);
  visit("optimizer/step", checkpoint.optimizer.step_count);
  visit("scaler/scale", checkpoint.scaler_scale);
  visit("scaler/growth_tracker", checkpoint.scaler_growth_tracker);
  visit("spikes/window", checkpoint.spike_window);
  visit("spikes/accepted", checkpoint.spike_accepted);
}

struct CollectTensors {
  parameters::NamedTensors& all;

  void operator()(std::string_view /*name*/, const optim::OptimizerState& optimizer) const {
    for (const auto& [slot, tensors] : optimizer.slots) (*this)(slot, tensors);
  }
  void operator()(std::string_view name, const at::Tensor& tensor) const {
    if (tensor.defined()) all.emplace_back(name, tensor);
  }
  template <typename Group>
  void operator()(std::string_view group, const Group& tensors) const {
    for (const auto& [name, tensor] : tensors) (*this)(fmt::format("{}/{}", group, name), tensor);
  }
};

struct PlaceTensor {
  std::string_view wanted;
  const at::Tensor& tensor;
  bool& is_placed;

  void operator()(std::string_view name, at::Tensor& place) const {
    if (name != wanted) return;
    place = tensor;
    is_placed = true;
  }
  void operator()(std::string_view /*name*/, optim::OptimizerState& optimizer) const {
    for (const std::string_view slot : optim::kOptimizerSlots)
      if (is_in(slot)) (*this)(slot, optimizer.slot(slot));
  }
  template <typename Group>
  void operator()(std::string_view group, Group& tensors) const {
    if (!is_in(group)) return;
    tensors.insert(tensors.end(), {std::string(wanted.substr(group.size() + 1)), tensor});
    is_placed = true;
  }
  bool is_in(std::string_view group) const {
    return wanted.starts_with(group) && wanted.substr(group.size(), 1) == "/";
  }
};

}  // namespace

std::span<const TensorType> tensor_types() { return kTensorTypes; }

const TensorType& type_of(const at::Tensor& tensor) {
  const auto found = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                  [&](const TensorType& d) { return d.type == tensor.scalar_type(); });
  TORCH_CHECK(found != kTensorTypes.end(), "checkpoints hold no tensors of type ", tensor.scalar_type());
  return *found;
}

parameters::NamedTensors tensors_of(const Checkpoint& checkpoint) {
  parameters::NamedTensors all;
  visit_tensors(checkpoint, CollectTensors{all});
  std::erase_if(all, [&](const auto& tensor) {
    constexpr std::string_view kModel = "model/";
    const std::string_view name = tensor.first;
    return name.starts_with(kModel) && checkpoint.from_base.contains(name.substr(kModel.size()));
  });
  return all;
}

bool place_tensor(Checkpoint& checkpoint, const std::string& name, const at::Tensor& tensor) {
  bool is_placed = false;
  visit_tensors(checkpoint, PlaceTensor{name, tensor, is_placed});
  return is_placed;
}

std::string record_of(const std::string& tensor) { return "data/" + tensor; }

}  // namespace gpt::checkpoint
