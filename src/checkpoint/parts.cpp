#include "parts.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "gpt/core/error.h"
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

// Likewise for the plain values and their place in checkpoint.json.
template <typename AnyCheckpoint, typename Visitor>
void visit_values(AnyCheckpoint& checkpoint, Visitor&& visit) {
  visit("/step", checkpoint.step);
  visit("/best_val_loss", checkpoint.best_val_loss);
  visit("/evaluated_step", checkpoint.evaluated_step);
  visit("/evaluations_since_best", checkpoint.evaluations_since_best, /*is_optional=*/true);
  visit("/eval_sequences", checkpoint.eval_sequences, /*is_optional=*/true);
  visit("/skipped_steps", checkpoint.skipped_steps);
  visit("/consecutive_skipped_steps", checkpoint.consecutive_skipped_steps);
  visit("/spike_count", checkpoint.spikes, /*is_optional=*/true);
  visit("/rollback/count", checkpoint.rollbacks, /*is_optional=*/true);
  visit("/rollback/learning_rate_factor", checkpoint.learning_rate_factor, /*is_optional=*/true);
  visit("/rollback/proven_step", checkpoint.proven_step, /*is_optional=*/true);
  visit("/rollback/waiting_step", checkpoint.waiting_step, /*is_optional=*/true);
  visit("/schedule/warmup_steps", checkpoint.warmup_steps, /*is_optional=*/true);
  visit("/plateau/best", checkpoint.plateau_best, /*is_optional=*/true);
  visit("/plateau/factor", checkpoint.plateau_factor, /*is_optional=*/true);
  visit("/plateau/without_improvement", checkpoint.plateau_without_improvement, /*is_optional=*/true);
  visit("/plateau/cooling_down", checkpoint.plateau_cooling_down, /*is_optional=*/true);
  visit("/chosen_products", checkpoint.chosen_products, /*is_optional=*/true);
  visit("/recording_failed", checkpoint.recording_failed, /*is_optional=*/true);
  visit("/teacher", checkpoint.teacher, /*is_optional=*/true);
  visit("/data/epoch", checkpoint.data_round);
  visit("/data/sample", checkpoint.data_sample);
  visit("/data/fingerprint", checkpoint.data_fingerprint);
  visit("/sample_start", checkpoint.sample_start, /*is_optional=*/true);
  visit("/text_format", checkpoint.text_format, /*is_optional=*/true);
  visit("/started_by", checkpoint.started_by, /*is_optional=*/true);
  visit("/environment", checkpoint.environment);
}

struct CollectTensors {
  NamedTensors& all;

  void operator()(std::string_view /*name*/, const OptimizerState& optimizer) const {
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
  void operator()(std::string_view /*name*/, OptimizerState& optimizer) const {
    for (const std::string_view slot : kOptimizerSlots)
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

struct WriteValue {
  Json& values;

  template <typename Value>
  void operator()(const char* place, const Value& value, bool /*is_optional*/ = false) const {
    values[Json::json_pointer(place)] = value;
  }
  template <typename Number>
  void operator()(const char* place, const std::optional<Number>& value, bool /*is_optional*/) const {
    if (value) (*this)(place, *value);
  }
};

struct ReadValue {
  const Json& values;

  template <typename Value>
  void operator()(const char* place, Value& value, bool is_optional = false) const {
    const Json::json_pointer pointer(place);
    if (!is_optional || values.contains(pointer)) read(values.at(pointer), value);
  }
  static void read(const Json& from, int64_t& value) { value = count_of(from); }
  template <typename Number>
  static void read(const Json& from, std::optional<Number>& value) {
    read(from, value.emplace());
  }
  static void read(const Json& from, double& value) {
    value = from.is_null() ? std::numeric_limits<double>::infinity() : from.get<double>();
  }
  template <typename Value>
  static void read(const Json& from, Value& value) {
    value = from.get<Value>();
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

int64_t count_of(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    throw Error(ExitCode::checkpoint, fmt::format("{} is not a count", value.dump()));
  }
  return value.get<int64_t>();
}

NamedTensors tensors_of(const Checkpoint& checkpoint) {
  NamedTensors all;
  visit_tensors(checkpoint, CollectTensors{all});
  return all;
}

bool place_tensor(Checkpoint& checkpoint, const std::string& name, const at::Tensor& tensor) {
  bool is_placed = false;
  visit_tensors(checkpoint, PlaceTensor{name, tensor, is_placed});
  return is_placed;
}

std::string record_of(const std::string& tensor) { return "data/" + tensor; }

Json values_of(const Checkpoint& checkpoint) {
  Json values;
  visit_values(checkpoint, WriteValue{values});
  return values;
}

void place_values(Checkpoint& checkpoint, const Json& values) { visit_values(checkpoint, ReadValue{values}); }

}  // namespace gpt::checkpoint
