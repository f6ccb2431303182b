#include "gpt/checkpoint/snapshot.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <new>
#include <utility>

#include "parts.h"

namespace gpt::checkpoint {
namespace {

constexpr uint64_t kAlignment = 64;  // of each tensor, in bytes

uint64_t room_for(const at::Tensor& tensor) { return (tensor.nbytes() + kAlignment - 1) / kAlignment * kAlignment; }

// Calls visit(tensor) for what this process has of a tensor in parts.
template <typename AnyParts, typename Visitor>
void visit_parts(AnyParts& parts, const Visitor& visit) {
  for (auto& [name, of_tensor] : parts)
    for (auto& part : of_tensor)
      if (part.values.defined()) visit(part.values);
}

}  // namespace

uint64_t Snapshot::bytes_of(const Checkpoint& state) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint::tensors_of(state))
    if (!tensor.is_meta()) bytes += room_for(tensor);
  visit_parts(state.parts, [&bytes](const at::Tensor& values) { bytes += room_for(values); });
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
  const parameters::NamedTensors tensors = checkpoint::tensors_of(state);
  state.model.clear(), state.optimizer.slots.clear(), state.rng.clear();
  std::byte* next = memory_.get();
  const auto copied = [&next](const at::Tensor& tensor) {
    const at::Tensor copy = at::from_blob(next, tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
    copy.copy_(tensor.detach());
    next += room_for(tensor);
    return copy;
  };
  for (const auto& [name, tensor] : tensors)
    (void)checkpoint::place_tensor(state, name, tensor.is_meta() ? tensor : copied(tensor));
  visit_parts(state.parts, [&copied](at::Tensor& values) { values = copied(values); });
  return state;
}

}  // namespace gpt::checkpoint
