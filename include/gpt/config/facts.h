// What the rules of a configuration (config/rules.h) may know beside it.
#pragma once

#include <cstdint>
#include <optional>

namespace gpt::config {

// What a configuration cannot say of itself. What is unknown contradicts nothing.
struct Facts {
  // The device, and how it computes there.
  std::optional<bool> is_cpu = {};
  std::optional<bool> computes_in_16_bits = {}, is_end_to_end = {};  // end to end: in bfloat16
  bool allocator_is_set = false;                                     // by PYTORCH_ALLOC_CONF
  // The processes of the run, those among which the sequences of an update are divided, and whether these compute with equal processors,
  // threads and builds.
  std::optional<int64_t> processes = {}, data_processes = {};
  std::optional<bool> are_alike = {};
  bool all_are_started = false;  // as many as the configuration says, and no launcher adds to them
  // The data.
  std::optional<bool> has_validation = {}, has_own_split = {}, has_json_lines = {}, is_resident = {};
  std::optional<bool> has_conversations = {};  // among what is trained on

  bool autocasts() const { return computes_in_16_bits == true && is_end_to_end == false; }
};

}  // namespace gpt::config
