// Products of 8 bits while a model is trained: keys of the section training.
#pragma once

#include <cstdint>
#include <vector>

namespace gpt {

enum class QuantizedForward { none, int8, fp8 };
enum class QuantizedProducts { forward, all };

// Products of the blocks in 8 bits, in training alone.
struct QuantizedConfig {
  QuantizedForward type = QuantizedForward::none;
  QuantizedProducts products = QuantizedProducts::forward;
  int64_t skip = 1;    // blocks at each end that are left out
  bool force = false;  // also where it is not faster

  bool is_on() const { return type != QuantizedForward::none; }
  bool has_all() const { return products == QuantizedProducts::all; }
};

namespace config {
struct Option;
std::vector<Option> options(QuantizedConfig& config);  // a row for each key
}  // namespace config

}  // namespace gpt
