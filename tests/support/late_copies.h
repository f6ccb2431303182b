// On a CPU, where the memory of the host is a second buffer: what HostCopies has copied in is there when it is awaited, not before.
#pragma once

#include <ATen/ops/full.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/device/host_copies.h"

namespace gpt::test {

// Says in which order copies begin and end.
class LateCopies : public device::HostCopies {
 public:
  at::Tensor buffer(int64_t bytes) override { return at::full({bytes}, 0xFF, at::kByte); }

  void begin_out(const at::Tensor& from, const at::Tensor& buffer) override {
    say("out");
    out += from.numel();
    buffer.narrow(0, 0, from.numel()).copy_(from);
    left.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(from.storage().unsafeGetStorageImpl()));
  }

  // Not a number, as floats, until it is awaited.
  std::pair<at::Tensor, std::function<void()>> begin_in(const at::Tensor& buffer, int64_t bytes) override {
    say("in");
    in += bytes;
    const at::Tensor tensor = at::full({bytes}, 0xFF, at::kByte);
    return {tensor, [this, tensor, buffer] {
              say("await");
              tensor.copy_(buffer.narrow(0, 0, tensor.numel()));
            }};
  }

  void say(const std::string& what) {
    if (said.empty() || said.back() != what) said.push_back(what);
  }

  int64_t out = 0, in = 0;  // bytes
  std::vector<std::string> said;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> left;
};

}  // namespace gpt::test
