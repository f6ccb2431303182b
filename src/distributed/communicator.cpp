#include "gpt/distributed/communicator.h"

#include <ATen/ops/full.h>

#include <algorithm>

#include "gpt/layout/alignment.h"

namespace gpt::distributed {
namespace {

class Alone : public Communicator {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  void begin_sum(const at::Tensor&, at::ScalarType) override {}
  void begin_sum_of_part(const at::Tensor&, at::ScalarType, const Arrival&, int64_t) override {}
  void begin_gather(const at::Tensor&, int64_t) override {}
  void finish() override {}
  void broadcast(const at::Tensor&) override {}
  std::function<void()> begin_broadcast(const at::Tensor&, int64_t) override {
    return [] {};
  }
  std::function<void()> begin_largest(const at::Tensor&) override {
    return [] {};
  }
  void exchange(const at::Tensor& received, const std::vector<int64_t>&, const at::Tensor& sent,
                const std::vector<int64_t>&) override {
    received.copy_(sent);
  }
  std::shared_ptr<Communicator> another() override { return alone(); }
  int64_t bytes_sent() const override { return 0; }
  double seconds_waited() const override { return 0; }
};

}  // namespace

std::shared_ptr<Communicator> alone() { return std::make_shared<Alone>(); }

std::vector<const Communicator*> Mesh::communicators() const {
  const auto& [stages, ends, before, after] = pipeline;
  std::vector<const Communicator*> found;
  for (const auto& each :
       {all, data, tensor, stages, ends, before.forward, before.backward, after.forward, after.backward})
    if (std::find(found.begin(), found.end(), each.get()) == found.end()) found.push_back(each.get());
  return found;
}

int64_t Mesh::bytes_sent() const {
  int64_t bytes = 0;
  for (const Communicator* each : communicators()) bytes += each->bytes_sent();
  return bytes;
}

double Mesh::seconds_waited() const {
  double seconds = 0;
  for (const Communicator* each : communicators()) seconds += each->seconds_waited();
  return seconds;
}

std::vector<std::function<void()>> Communicator::begin_gathers(const std::vector<Gathering>& all) {
  for (const auto& [x, owner] : all) begin_gather(x, owner);
  finish();
  return std::vector<std::function<void()>>(all.size(), [] {});
}

bool Communicator::is_any(bool own) {
  const at::Tensor largest = at::full({1}, own ? 1 : 0, at::kLong);
  begin_largest(largest)();
  return largest.item<int64_t>() != 0;
}

bool Communicator::first_says(bool own) { return first_says(int64_t{own}) != 0; }

int64_t Communicator::first_says(int64_t own) {
  const at::Tensor said = at::full({1}, own, at::kLong);
  broadcast(said);
  return said.item<int64_t>();
}

double Communicator::first_says(double own) {
  const at::Tensor said = at::full({1}, own, at::kDouble);
  broadcast(said);
  return said.item<double>();
}

Part part_of(int64_t count, int64_t rank, int64_t size) {
  const int64_t unit = count % layout::kParameterAlignment == 0 ? layout::kParameterAlignment : 1, units = count / unit;
  const int64_t length = (units + size - 1) / size * unit;
  return {std::min(count, rank * length), std::min(count, (rank + 1) * length)};
}

// Each part goes to the process that adds it up, and comes back as a sum.
double bytes_sent_by_sum(double bytes, int64_t processes) {
  return 2 * bytes * static_cast<double>(processes - 1) / static_cast<double>(processes);
}

// What arrives, and what is copied. Of one stretch at a time 16 bits become 32.
double memory_of_sum(double bytes, double stretch, bool is_converted, bool is_narrow) {
  const double under_way = std::min(bytes, static_cast<double>(kStretchesInFlight) * stretch);
  return under_way * (is_converted ? 2 : 1) + (is_narrow ? 2 * std::min(bytes, stretch) : 0);
}

// A copy of the own part is sent.
double memory_of_gather(double bytes, double stretch, int64_t processes) {
  return std::min(bytes, static_cast<double>(kStretchesInFlight) * stretch) / static_cast<double>(processes);
}

void in_pairs(int64_t n, const std::function<void(int64_t kept, int64_t count)>& add) {
  for (int64_t kept; n > 1; n = kept) {
    kept = (n + 1) / 2;
    add(kept, n - kept);
  }
}

void add_in_pairs(const at::Tensor& parts) {
  in_pairs(parts.size(0),
           [&parts](int64_t kept, int64_t count) { parts.narrow(0, 0, count).add_(parts.narrow(0, kept, count)); });
}

}  // namespace gpt::distributed
