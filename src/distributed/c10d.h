// A communicator on LibTorch's c10d: Gloo for tensors in the host's memory, NCCL for those on a GPU.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>

#include "gpt/distributed/communicator.h"
#include "gpt/distributed/ranks.h"
#include "gpt/distributed/watch.h"

namespace gpt::distributed {

// `watch` must outlive it. `address`: of this process, for Gloo.
std::shared_ptr<Communicator> connect(const Ranks& ranks, const c10::intrusive_ptr<c10d::Store>& store,
                                      at::Device device, const std::string& address, const Watch& watch);

}  // namespace gpt::distributed
