#include "consistency.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/aminmax.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/device/precision.h"
#include "gpt/layout/tuning.h"
#include "gpt/optim/optimizer_state.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "parts.h"

namespace gpt::checkpoint {
namespace {

template <typename... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw Error(ExitCode::checkpoint, fmt::format(text, std::forward<Arguments>(arguments)...));
}

void require_valid(const Config& config) {
  try {
    config::validate(config, "config.yaml");
  } catch (const Error& error) { refuse("{}", error.what()); }
  if (!config.model.vocab_size) refuse("config.yaml: model.vocab_size is not set");
  if (config.training.batch_size == 0) refuse("config.yaml: training.batch_size is not set");
}

// Values that a tensor cannot have.
void require_values(const at::Tensor& tensor, bool may_be_negative, std::string_view group, const std::string& name) {
  if (tensor.numel() == 0) return;
  const auto [least, largest] = at::aminmax(tensor);  // both NaN if any value is
  const double low = least.item<double>(), high = largest.item<double>();
  if (!std::isfinite(low) || !std::isfinite(high)) refuse("{}/{} holds values that are not finite", group, name);
  if (!may_be_negative && low < 0) refuse("{}/{} holds values below zero", group, name);
}

// A tensor for each row, of its shape and of this type.
struct TypedRows {
  std::vector<layout::ParameterRow> rows;
  std::vector<at::ScalarType> types;
};

std::vector<layout::ParameterRow> rows_of_run(const Config& config) {
  try {
    return layout::parameter_table(config.model, config.training.tuning);
  } catch (const Error& error) { refuse("config.yaml: {}", error.what()); }
}

// What is not trained may have the 16 bits that the run computed with.
TypedRows weights_of(const std::vector<layout::ParameterRow>& rows, const Checkpoint& checkpoint) {
  TypedRows result{rows, std::vector(rows.size(), device::kept_weight_type(checkpoint.config.training.precision))};
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].is_trained) continue;
    for (const auto& [name, tensor] : checkpoint.model) {
      const at::ScalarType type = tensor.scalar_type();
      const bool may_have_any =
          rows[i].is_narrow() || type == at::kBFloat16 || type == at::kHalf || checkpoint.from_base.contains(name);
      if (name == rows[i].name && may_have_any) result.types[i] = type;
    }
  }
  return result;
}

// The parameters that have this slot, with the shapes of its tensors.
TypedRows rows_of_slot(std::string_view name, const std::vector<layout::ParameterRow>& rows,
                       const OptimizerConfig& config) {
  TypedRows result;
  for (const layout::ParameterRow& row : rows) {
    if (!row.is_trained) continue;
    for (const optim::OptimizerSlot& slot : optim::optimizer_slots(optim::state_form(row, config))) {
      if (slot.name != name) continue;
      result.rows.push_back(row);
      result.rows.back().shape = slot.shape(row);
      result.types.push_back(slot.dtype);
    }
  }
  return result;
}

void require_tensors(const TypedRows& wanted, const parameters::NamedTensors& tensors, std::string_view group,
                     bool may_be_negative = true) {
  const std::vector<at::Tensor> found = parameters::tensors_of_rows(wanted.rows, tensors, group);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string& name = wanted.rows[i].name;
    if (found[i].scalar_type() != wanted.types[i]) {
      refuse("{}/{} is {} instead of {}", group, name, c10::toString(found[i].scalar_type()),
             c10::toString(wanted.types[i]));
    }
    require_values(found[i], may_be_negative, group, name);
  }
}

// A scalar that is zero or more.
void require_scalar(const at::Tensor& tensor, at::ScalarType type, const char* name) {
  const bool is_scalar = tensor.defined() && tensor.numel() == 1 && tensor.scalar_type() == type;
  if (!is_scalar) refuse("{} is not one value of type {}", name, c10::toString(type));
  const double value = tensor.item<double>();
  if (!(value >= 0) || !std::isfinite(value)) refuse("{} is {}", name, value);
}

// The losses and norms that spikes are told by.
void require_window(const Checkpoint& checkpoint) {
  const at::Tensor& window = checkpoint.spike_window;
  if (!window.defined() && !checkpoint.spike_accepted.defined()) return;
  require_scalar(checkpoint.spike_accepted, at::kLong, "spikes/accepted");
  const bool has_shape = window.defined() && window.dim() == 2 && window.size(0) == 2 && window.size(1) > 0;
  if (!has_shape || window.scalar_type() != at::kFloat) refuse("spikes/window is not two rows of float32");
  require_values(window, /*may_be_negative=*/false, "spikes", "window");
  if (const auto accepted = checkpoint.spike_accepted.item<int64_t>(); accepted >= 2 * window.size(1))
    refuse("spikes/accepted is {} for a window of {}", accepted, window.size(1));
}

void require_random_states(const std::map<std::string, at::Tensor>& states) {
  constexpr int64_t kCudaBytes = 16;  // seed and offset
  if (states.count("cpu") == 0) refuse("rng/cpu is missing");
  for (const auto& [name, state] : states) {
    if (name != "cpu" && name != "cuda") refuse("rng/{} is not known", name);
    if (state.scalar_type() != at::kByte || state.dim() != 1) refuse("rng/{} is not a row of bytes", name);
    if (name == "cuda" && state.numel() != kCudaBytes)
      refuse("rng/cuda has {} bytes instead of {}", state.numel(), kCudaBytes);
  }
  try {
    at::detail::createCPUGenerator().set_state(states.at("cpu"));
  } catch (const c10::Error&) { refuse("rng/cpu is not the state of a generator"); }
}

void require_text_format(const std::optional<tokenizer::TextFormat>& format, int64_t rows) {
  if (!format) return;
  for (const int32_t id : format->ids())
    if (id < 0 || id >= rows) refuse("the format of texts names token {} of {}", id, rows);
}

void require_tokenizer(const std::string& tokenizer, const std::optional<int64_t>& sample_start,
                       const std::optional<tokenizer::TextFormat>& text_format, const Config& config) {
  const int64_t rows = *config.model.vocab_size;
  require_text_format(text_format, rows);
  if (sample_start && (*sample_start < 0 || *sample_start >= rows))
    refuse("samples start from token {} of {}", *sample_start, rows);
  if (tokenizer.empty()) {
    if (config.data.bin.empty()) refuse("tokenizer.json is empty, though the run read a text");
    return;  // a run on token ids alone has none
  }
  try {
    const int64_t size = tokenizer::tokenizer_from_json(tokenizer, "tokenizer.json")->vocab_size();
    if (size > rows) refuse("tokenizer.json has {} tokens, and the model of config.yaml {}", size, rows);
  } catch (const Error& error) { refuse("{}", error.what()); }
}

}  // namespace

void require_consistent_model(const Checkpoint& checkpoint) {
  require_valid(checkpoint.config);
  require_tensors(weights_of(rows_of_run(checkpoint.config), checkpoint), checkpoint.model, "model");
  require_valid_values(checkpoint);
  require_tokenizer(checkpoint.tokenizer, checkpoint.sample_start, checkpoint.text_format, checkpoint.config);
}

void require_consistent(const Checkpoint& checkpoint) {
  require_consistent_model(checkpoint);
  const std::vector<layout::ParameterRow> parameters = rows_of_run(checkpoint.config);
  for (const std::string_view slot : optim::kOptimizerSlots) {
    require_tensors(rows_of_slot(slot, parameters, checkpoint.config.training.optimizer),
                    checkpoint.optimizer.slot(slot), slot, optim::may_be_negative(slot));
  }
  require_scalar(checkpoint.optimizer.step_count, at::kFloat, "optimizer/step");
  if (checkpoint.scaler_scale.defined() || checkpoint.scaler_growth_tracker.defined()) {
    require_scalar(checkpoint.scaler_scale, at::kFloat, "scaler/scale");
    require_scalar(checkpoint.scaler_growth_tracker, at::kInt, "scaler/growth_tracker");
  }
  require_random_states(checkpoint.rng);
  require_window(checkpoint);
}

void require_usable(const Config& config, const std::string& tokenizer, const std::optional<int64_t>& sample_start,
                    const std::optional<tokenizer::TextFormat>& text_format) {
  require_valid(config);
  (void)rows_of_run(config);
  require_tokenizer(tokenizer, sample_start, text_format, config);
}

}  // namespace gpt::checkpoint
