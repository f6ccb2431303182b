// What a checkpoint consists of, defined once for its three forms: our records, what Python sees, and the struct itself.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/checkpoint/state.h"

namespace gpt::checkpoint {

using Json = nlohmann::ordered_json;

struct TensorType {
  at::ScalarType type;
  std::string_view name;     // in checkpoint.json
  std::string_view storage;  // Python's class
};
std::span<const TensorType> tensor_types();
const TensorType& type_of(const at::Tensor& tensor);

// Every tensor under the name of its record. place_tensor() is the inverse; false if the name is unknown.
parameters::NamedTensors tensors_of(const Checkpoint& checkpoint);
bool place_tensor(Checkpoint& checkpoint, const std::string& name, const at::Tensor& tensor);

// The records that are texts, in this order before those of the tensors.
inline constexpr std::array<const char*, 6> kTextRecords = {"data.pkl",    "version",        "byteorder",
                                                            "config.yaml", "tokenizer.json", "checkpoint.json"};
struct TextRecord {
  std::string name, text;
};
std::vector<TextRecord> texts_of(const Checkpoint& checkpoint);
std::string record_of(const std::string& tensor);  // data/NAME

// Throws gpt::Error(numerics) where it is not, for which the file is not written. `name`: of a parameter.
void require_finite(const std::string& path, const std::string& name, const at::Tensor& tensor);

// As load_checkpoint(path), but with all weights as they were before the run packed any.
Checkpoint load_in_full(const std::string& path);

// The plain values, each of which has a row in values.cpp. JSON has no infinity, so null stands for it. place_values() is the inverse;
// it throws gpt::Error(checkpoint) or nlohmann's exceptions if a value is missing or of another type.
Json values_of(const Checkpoint& checkpoint);
void place_values(Checkpoint& checkpoint, const Json& values);
void require_valid_values(const Checkpoint& checkpoint);  // throws gpt::Error(checkpoint) where one is out of its range
std::string describe_values();                            // the table in src/run/README.md
int64_t count_of(const Json& value);                      // a whole number >= 0

// data.pkl: the dict that torch.load(path, weights_only=True) returns.
std::string python_view(const Checkpoint& checkpoint);

}  // namespace gpt::checkpoint
