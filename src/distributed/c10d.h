// A communicator on LibTorch's c10d: Gloo for tensors in the host's memory, NCCL for those on a GPU.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>
#include <vector>

#include "gpt/distributed/communicator.h"
#include "gpt/distributed/ranks.h"
#include "gpt/distributed/watch.h"

namespace gpt::distributed {

// `watch` must outlive it. `addresses`: of this process, among which Gloo's connections are dealt out. Throws gpt::Error: peer where one of the
// processes cannot be reached, interrupted after a signal.
std::shared_ptr<Communicator> connect(const Ranks& ranks, const c10::intrusive_ptr<c10d::Store>& store,
                                      at::Device device, const std::vector<std::string>& addresses, const Watch& watch);

}  // namespace gpt::distributed
