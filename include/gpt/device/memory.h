// How much memory of a device this program takes, and what it gives back: settings of the two allocators, LibTorch's on a GPU and
// cpu_allocator.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/config/training_config.h"

namespace gpt::device {

// Applies training.memory_fraction, expandable_segments and memory_check. Nothing of the run may have been allocated yet.
void configure_memory(const TrainingConfig& training, at::Device device);

// A tensor in memory of the host that the kernels of a GPU read and write over the bus. Throws gpt::Error(memory) where the host
// cannot lock so much of it, which is `setting`'s.
at::Tensor zeros_on_host(int64_t count, at::ScalarType type, at::Device device,
                         const char* setting = "training.offload_optimizer");

// Gives back what no tensor uses. Recorded graphs keep theirs.
void release_unused_memory(at::Device device);

// On a GPU, memory is taken in segments that grow, so that less is lost between tensors of different sizes. What the user has
// set in LibTorch's own variable takes precedence.
void use_expandable_segments(bool are_expandable);
// Where a system refuses such segments, as a sandbox may: from then on use_expandable_segments() asks for none. False where there is
// nothing to give up.
bool give_up_expandable_segments();
bool has_allocator_variable();  // PYTORCH_ALLOC_CONF, or PYTORCH_CUDA_ALLOC_CONF, its name in older versions

}  // namespace gpt::device
