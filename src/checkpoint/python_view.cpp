#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpt/config/option.h"
#include "gpt/config/value.h"
#include "gpt/container/pickle.h"
#include "gpt/layout/parameter_table.h"
#include "parts.h"

namespace gpt::checkpoint {
namespace {

void pickle_value(container::PickleWriter& pickle, const Json& value) {
  if (value.is_object()) {
    pickle.begin_dict();
    for (const auto& [key, item] : value.items()) {
      pickle.text(key);
      pickle_value(pickle, item);
    }
    pickle.end_dict();
  } else if (value.is_array()) {
    pickle.begin_tuple();
    for (const Json& item : value) pickle_value(pickle, item);
    pickle.end_tuple();
  } else if (value.is_string()) {
    pickle.text(value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    pickle.real(value.get<double>());
  } else if (value.is_boolean()) {
    pickle.boolean(value.get<bool>());
  } else if (value.is_null()) {
    pickle.none();
  } else {
    pickle.integer(value.get<int64_t>());
  }
}

struct OptionValue {
  template <class Value>
  Json operator()(Value* value) const {  // numbers and texts
    return *value;
  }
  template <class Number>
  Json operator()(std::optional<Number>* value) const {
    return *value ? Json(**value) : Json(nullptr);
  }
  Json operator()(Interval* value) const {
    return value->unit == Interval::Unit::run ? Json(value->count) : Json(config::value_text(value));
  }
  Json operator()(Duration* value) const { return config::value_text(value); }
  Json operator()(const config::NumberOrAuto& number) const {
    return *number.value == 0 ? Json("auto") : Json(*number.value);
  }
  Json operator()(const config::FoundNumber& found) const { return *found.is_auto ? Json("auto") : Json(*found.value); }
  Json operator()(const auto& value) const { return config::value_text(value); }
};

// {section: {key: value}}
Json config_of(Config config) {
  Json sections = Json::object();
  for (const config::Option& row : config::options(config)) {
    Json& section = row.section.empty() ? sections : sections[row.section];
    section[row.name] = std::visit(OptionValue{}, row.target);
  }
  return sections;
}

void pickle_tensor(container::PickleWriter& pickle, const std::string& name, const std::string& record,
                   const at::Tensor& tensor) {
  pickle.text(name);
  pickle.tensor(type_of(tensor).storage, record, tensor.sizes().vec());
}

void pickle_model(container::PickleWriter& pickle, const Checkpoint& checkpoint) {
  pickle.begin_dict();
  for (const auto& [name, tensor] : checkpoint.model)
    if (!checkpoint.from_base.contains(name)) pickle_tensor(pickle, name, "model/" + name, tensor);
  // A tied head is the embedding under a second name, as in the state dict of any PyTorch model that ties them.
  if (!checkpoint.config.model.vocab_size) return pickle.end_dict();  // no model: there is no table of its parameters
  for (const layout::ParameterRow& row : layout::parameter_table(checkpoint.config.model)) {
    if (row.tied_name.empty()) continue;
    for (const auto& [name, tensor] : checkpoint.model) {
      if (name == row.name && !checkpoint.from_base.contains(name))
        pickle_tensor(pickle, row.tied_name, "model/" + name, tensor);
    }
  }
  pickle.end_dict();
}

// {"state": {name: {"exp_avg", "exp_avg_sq", ...}}, "step": n}, with the slots that the parameter has
void pickle_optimizer(container::PickleWriter& pickle, const parameters::NamedTensors& parameters,
                      const optim::OptimizerState& optimizer) {
  pickle.begin_dict();
  pickle.text("state");
  pickle.begin_dict();
  // The next of each slot's tensors, which are in the order of the parameters.
  std::vector<size_t> next(optimizer.slots.size());
  for (const auto& [name, value] : parameters) {
    const auto has_next = [&](size_t i) {
      const parameters::NamedTensors& tensors = optimizer.slots[i].second;
      return next[i] < tensors.size() && tensors[next[i]].first == name;
    };
    bool has_any = false;
    for (size_t i = 0; i < next.size(); ++i) has_any = has_any || has_next(i);
    if (!has_any) continue;  // it is not trained
    pickle.text(name);
    pickle.begin_dict();
    for (size_t i = 0; i < next.size(); ++i) {
      if (!has_next(i)) continue;
      const auto& [slot, tensors] = optimizer.slots[i];
      pickle_tensor(pickle, slot, slot + "/" + name, tensors[next[i]++].second);
    }
    pickle.end_dict();
  }
  for (size_t i = 0; i < next.size(); ++i) {
    TORCH_CHECK(next[i] == optimizer.slots[i].second.size(), "the parameters of the optimizer's slot ",
                optimizer.slots[i].first, " are not in the order of the model's");
  }
  pickle.end_dict();
  pickle.text("step");
  pickle.integer(optimizer.step_count.defined() ? optimizer.step_count.item<int64_t>() : 0);
  pickle.end_dict();
}

}  // namespace

std::string python_view(const Checkpoint& checkpoint) {
  container::PickleWriter pickle;
  pickle.begin_dict();
  pickle.text("model");
  pickle_model(pickle, checkpoint);
  pickle.text("optimizer");
  pickle_optimizer(pickle, checkpoint.model, checkpoint.optimizer);
  pickle.text("config");
  pickle_value(pickle, config_of(checkpoint.config));
  pickle.text("scaler");  // {} without one, as PyTorch's own
  pickle.begin_dict();
  if (checkpoint.scaler_scale.defined()) {
    pickle_tensor(pickle, "scale", "scaler/scale", checkpoint.scaler_scale);
    pickle_tensor(pickle, "growth_tracker", "scaler/growth_tracker", checkpoint.scaler_growth_tracker);
  }
  pickle.end_dict();
  if (checkpoint.spike_window.defined()) {
    pickle.text("spikes");
    pickle.begin_dict();
    pickle_tensor(pickle, "window", "spikes/window", checkpoint.spike_window);
    pickle_tensor(pickle, "accepted", "spikes/accepted", checkpoint.spike_accepted);
    pickle.end_dict();
  }
  pickle.text("rng");
  pickle.begin_dict();
  for (const auto& [name, tensor] : checkpoint.rng) pickle_tensor(pickle, name, "rng/" + name, tensor);
  pickle.end_dict();
  pickle.text("tokenizer");
  pickle.text(checkpoint.tokenizer);
  const Json values = values_of(checkpoint);
  for (const auto& [key, value] : values.items()) {
    pickle.text(key);
    pickle_value(pickle, value);
  }
  pickle.end_dict();
  return pickle.finish();
}

}  // namespace gpt::checkpoint
