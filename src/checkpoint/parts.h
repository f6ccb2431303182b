// What a checkpoint consists of, said once for its three forms: our records, what Python sees, and the struct itself.
#pragma once

#include <c10/core/ScalarType.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "gpt/checkpoint/checkpoint.h"

namespace gpt::checkpoint {

using Json = nlohmann::ordered_json;

struct TensorType {
  at::ScalarType type;
  std::string_view name;     // in checkpoint.json
  std::string_view storage;  // Python's class
};
std::span<const TensorType> tensor_types();
const TensorType& type_of(const at::Tensor& tensor);

// Every tensor under the name of its record. place_tensor() is the way back; false where it knows no such name.
NamedTensors tensors_of(const Checkpoint& checkpoint);
bool place_tensor(Checkpoint& checkpoint, const std::string& name, const at::Tensor& tensor);

// The plain values. JSON text knows no infinity and says null. place_values() is the way back; it throws
// gpt::Error(checkpoint) or nlohmann's exceptions where a value is missing or is not what it should be.
Json values_of(const Checkpoint& checkpoint);
void place_values(Checkpoint& checkpoint, const Json& values);
int64_t count_of(const Json& value);  // a whole number >= 0

// data.pkl: the dict that torch.load(path, weights_only=True) returns.
std::string python_view(const Checkpoint& checkpoint);

}  // namespace gpt::checkpoint
