#include "parts.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "gpt/core/error.h"

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

}  // namespace

std::span<const TensorType> tensor_types() { return kTensorTypes; }

const TensorType& type_of(const at::Tensor& tensor) {
  const auto found = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                  [&](const TensorType& d) { return d.type == tensor.scalar_type(); });
  TORCH_CHECK(found != kTensorTypes.end(), "checkpoints hold no tensors of type ", tensor.scalar_type());
  return *found;
}

NamedTensors tensors_of(const Checkpoint& checkpoint) {
  NamedTensors all;
  const auto add = [&all](const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined()) all.emplace_back(name, tensor);
  };
  for (const auto& [name, tensor] : checkpoint.model) add("model/" + name, tensor);
  for (const auto& [name, tensor] : checkpoint.exp_avg) add("exp_avg/" + name, tensor);
  for (const auto& [name, tensor] : checkpoint.exp_avg_sq) add("exp_avg_sq/" + name, tensor);
  for (const auto& [name, tensor] : checkpoint.rng) add("rng/" + name, tensor);
  add("optimizer/step", checkpoint.optimizer_step);
  add("scaler/scale", checkpoint.scaler_scale);
  add("scaler/growth_tracker", checkpoint.scaler_growth_tracker);
  return all;
}

bool place_tensor(Checkpoint& checkpoint, const std::string& name, const at::Tensor& tensor) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return false;
  const std::string group = name.substr(0, slash), rest = name.substr(slash + 1);
  if (group == "model") {
    checkpoint.model.emplace_back(rest, tensor);
  } else if (group == "exp_avg") {
    checkpoint.exp_avg.emplace_back(rest, tensor);
  } else if (group == "exp_avg_sq") {
    checkpoint.exp_avg_sq.emplace_back(rest, tensor);
  } else if (group == "rng") {
    checkpoint.rng.emplace(rest, tensor);
  } else if (name == "optimizer/step") {
    checkpoint.optimizer_step = tensor;
  } else if (name == "scaler/scale") {
    checkpoint.scaler_scale = tensor;
  } else if (name == "scaler/growth_tracker") {
    checkpoint.scaler_growth_tracker = tensor;
  } else {
    return false;
  }
  return true;
}

Json values_of(const Checkpoint& checkpoint) {
  return {{"step", checkpoint.step},
          {"best_val_loss", checkpoint.best_val_loss},
          {"evaluated_step", checkpoint.evaluated_step},
          {"skipped_steps", checkpoint.skipped_steps},
          {"consecutive_skipped_steps", checkpoint.consecutive_skipped_steps},
          {"data",
           {{"epoch", checkpoint.data_round},
            {"sample", checkpoint.data_sample},
            {"fingerprint", checkpoint.data_fingerprint}}},
          {"started_by", checkpoint.started_by},
          {"environment", checkpoint.environment}};
}

int64_t count_of(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    throw Error(ExitCode::checkpoint, fmt::format("{} is not a count", value.dump()));
  }
  return value.get<int64_t>();
}

void place_values(Checkpoint& checkpoint, const Json& values) {
  const Json& best = values.at("best_val_loss");
  const Json& data = values.at("data");
  checkpoint.step = count_of(values.at("step"));
  checkpoint.best_val_loss = best.is_null() ? std::numeric_limits<double>::infinity() : best.get<double>();
  checkpoint.evaluated_step = count_of(values.at("evaluated_step"));
  checkpoint.skipped_steps = count_of(values.at("skipped_steps"));
  checkpoint.consecutive_skipped_steps = count_of(values.at("consecutive_skipped_steps"));
  checkpoint.data_round = count_of(data.at("epoch"));
  checkpoint.data_sample = count_of(data.at("sample"));
  checkpoint.data_fingerprint = data.at("fingerprint");
  checkpoint.started_by = values.value("started_by", "auto");
  checkpoint.environment = values.at("environment");
}

}  // namespace gpt::checkpoint
