#include "gpt/checkpoint/snapshot.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <new>
#include <utility>

#include "parts.h"

namespace gpt {
namespace {

constexpr uint64_t kAlignment = 64;  // of each tensor, in bytes

uint64_t room_for(const at::Tensor& tensor) { return (tensor.nbytes() + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

uint64_t Snapshot::bytes_of(const Checkpoint& state) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint::tensors_of(state)) bytes += room_for(tensor);
  return bytes;
}

Checkpoint Snapshot::take(Checkpoint state) {
  const uint64_t needed = bytes_of(state);
  if (needed > bytes_) {
    release();
    void* const memory = mmap(nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_.reset(static_cast<std::byte*>(memory), [needed](std::byte* mapped) { munmap(mapped, needed); });
    bytes_ = needed;
  }
  const NamedTensors tensors = checkpoint::tensors_of(state);
  state.model.clear(), state.optimizer.slots.clear(), state.rng.clear();
  std::byte* next = memory_.get();
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor copy = at::from_blob(next, tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
    copy.copy_(tensor.detach());
    (void)checkpoint::place_tensor(state, name, copy);
    next += room_for(tensor);
  }
  return state;
}

}  // namespace gpt
