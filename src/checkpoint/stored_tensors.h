// Texts and tensors in a container: what a JSON record says of the tensors, and the bytes of their records.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/container/container.h"
#include "gpt/parameters/frozen_matrix.h"
#include "gpt/parameters/named_tensors.h"
#include "parts.h"

namespace gpt::checkpoint {

// [{"name": ..., "dtype": ..., "shape": [...]}, ...]
Json descriptions_of(const parameters::NamedTensors& tensors);

// A container of the texts, and of the tensors as data/NAME. It is written by all threads of this one's team. Throws gpt::Error(disk),
// leaving an old file untouched.
void write_records(const std::string& path, const std::vector<TextRecord>& texts,
                   const parameters::NamedTensors& tensors);

// JSON of a bounded size and depth. Throws nlohmann's exceptions, or gpt::Error(checkpoint).
Json read_description(std::string_view text);

// The described tensors whose name begins with `prefix`, copied out of the file, in their order. Throws as read_description() does, and
// where a record is missing, has another size than its shape, or is named twice. `packer`: what becomes of each as soon as it is read, by its
// name behind the prefix, or null.
parameters::NamedTensors read_tensors(const Json& descriptions, const container::ContainerReader& file,
                                      std::string_view prefix = {}, parameters::RowPacker* packer = nullptr);

// All of them; of the optimizer's state, and of the weights where that is not null, what is needed, and zeros that take no memory.
parameters::NamedTensors read_needed_tensors(const Json& descriptions, const container::ContainerReader& file,
                                             const ModelConfig& model, const ValueRanges& needed_state,
                                             const ValueRanges* needed_weights);

// A reason, which quotes what the file holds: that may be a megabyte and have line ends.
std::string in_one_line(std::string_view text);

}  // namespace gpt::checkpoint
