// One of several processes of which there are no others: what it says goes nowhere, and nothing arrives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpt/distributed/communicator.h"

namespace gpt::test {

class QuietCommunicator : public distributed::Communicator {
 public:
  QuietCommunicator(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  void begin_sum(const at::Tensor&, at::ScalarType) override {}
  void begin_sum_of_part(const at::Tensor&, at::ScalarType, const distributed::Arrival&, int64_t) override {}
  void begin_gather(const at::Tensor&, int64_t) override {}
  void finish() override {}
  void broadcast(const at::Tensor&) override {}
  std::function<void()> begin_broadcast(const at::Tensor&, int64_t) override {
    return [] {};
  }
  std::function<void()> begin_largest(const at::Tensor&) override {
    return [] {};
  }
  void exchange(const at::Tensor&, const std::vector<int64_t>&, const at::Tensor&,
                const std::vector<int64_t>&) override {}
  std::shared_ptr<distributed::Communicator> another() override { return distributed::alone(); }
  int64_t bytes_sent() const override { return 0; }
  double seconds_waited() const override { return 0; }

 private:
  int64_t rank_, size_;
};

}  // namespace gpt::test
