// Copies between a GPU and page-locked memory of the host, on a stream of their own, beside what is computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace gpt::device {

class HostCopies {
 public:
  virtual ~HostCopies() = default;

  // Memory of the host, uint8 (bytes). Throws gpt::Error(memory) where it cannot lock so much.
  virtual at::Tensor buffer(int64_t bytes) = 0;

  // Begins to copy what has been computed on the current stream so far, uint8 (bytes), into a buffer that is as long or longer. The caller
  // may let go of the tensor at once: its memory is used again only after the copy.
  virtual void begin_out(const at::Tensor& from, const at::Tensor& buffer) = 0;

  // Begins to copy so many bytes back. The result's tensor, uint8 (bytes), has them for what is computed on the current stream once its
  // function has been called. Copies happen in the order in which they have begun.
  virtual std::pair<at::Tensor, std::function<void()>> begin_in(const at::Tensor& buffer, int64_t bytes) = 0;
};

// On a CPU they are copies in its own memory, which have ended when they have begun.
std::shared_ptr<HostCopies> host_copies(at::Device device);

}  // namespace gpt::device
