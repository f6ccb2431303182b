// The processes of a run, once they have found each other. One process is a group of its own, for which nothing is opened.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "gpt/config/distributed_config.h"
#include "gpt/distributed/communicator.h"
#include "gpt/distributed/ranks.h"

namespace gpt::distributed {

class Group {
 public:
  // Waits until all have come. `device`: that of this process's part of the run. `folder`: the run's, in which the processes meet where
  // their launcher names no address. `timeout`: see Watch. Throws gpt::Error: peer where some do not come or cannot be reached.
  Group(const Ranks& ranks, at::Device device, const std::string& folder, double timeout);
  ~Group();  // as this process ends as it should, unless leave() was called
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const Ranks& ranks() const;
  bool has_lost_first() const;  // the first process is lost, so that it cannot say what has happened
  bool is_first() const { return ranks().is_first(); }
  const std::shared_ptr<Communicator>& communicator() const;  // of all

  // Arranges the processes, all of which call it: each `tensor` neighbours divide the layers of a model, and its `stages` are as far from each
  // other as they can be, since they send least. Until then all have a whole one. The product of both must divide their number.
  void arrange(int64_t tensor, int64_t stages = 1);
  const Mesh& mesh() const;

  // What a process says under this name, which is used once. That one does not wait; the others wait for as long as it is there, and throw
  // gpt::Error(interrupted) after a signal.
  std::string from(int64_t rank, const std::string& name, const std::string& text) const;
  // What all say under this name, in their order.
  std::vector<std::string> from_all(const std::string& name, const std::string& text) const;

  // Tells the others, and torchrun, why this process ends before the run does.
  void leave(const std::string& why) const;
  void forward_warning(const std::string& warning) const;  // into the first process's log

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpt::distributed
