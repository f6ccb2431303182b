// Tensors in a container: what a JSON record says of them, and the bytes of their records.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "gpt/container/container.h"
#include "gpt/parameters/named_tensors.h"
#include "parts.h"

namespace gpt::checkpoint {

// [{"name": ..., "dtype": ..., "shape": [...]}, ...]
Json descriptions_of(const NamedTensors& tensors);

// data/NAME of each.
void add_tensors(ContainerWriter& file, const NamedTensors& tensors);

// JSON of a bounded size and depth. Throws nlohmann's exceptions, or gpt::Error(checkpoint).
Json read_description(std::string_view text);

// The described tensors, copied out of the file, in their order. Throws as read_description() does, and where a record is missing, has
// another size than its shape, or is named twice.
NamedTensors read_tensors(const Json& descriptions, const ContainerReader& file);

// A reason, which quotes what the file holds: that may be a megabyte and have line ends.
std::string in_one_line(std::string_view text);

}  // namespace gpt::checkpoint
