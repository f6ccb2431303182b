#include "c10d.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef GPT_CUDA
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <chrono>
#include <utility>

#include "gpt/core/error.h"
#include "sums.h"

namespace gpt::distributed {
namespace {

// The watch knows when another process is lost; a collective may wait for as long as that one saves or writes a sample.
constexpr std::chrono::hours kNoLimit(24 * 365);

Backend connect_gloo(const Ranks& ranks, const c10::intrusive_ptr<c10d::Store>& store, const std::string& address) {
  constexpr int kConnections = 4;  // to each process, because one alone does not fill the line
  constexpr std::chrono::minutes kToConnect(1);
  const auto options = c10d::ProcessGroupGloo::Options::create(kToConnect);
  const auto device = c10d::ProcessGroupGloo::createDeviceForHostname(address);
  options->devices.assign(kConnections, device);
  options->threads = kConnections;
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(ranks.rank),
                                                                static_cast<int>(ranks.size), options);
  gloo->setTimeout(kNoLimit);
  return gloo;
}

// Where the device is the CPU: none.
Backend connect_nccl([[maybe_unused]] const Ranks& ranks, [[maybe_unused]] const c10::intrusive_ptr<c10d::Store>& store,
                     [[maybe_unused]] at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) {
    const auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = kNoLimit;
    const auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(ranks.rank),
                                                                  static_cast<int>(ranks.size), options);
    nccl->eagerConnectSingleDevice(device);  // before a step is recorded
    return nccl;
  }
#endif
  return {};
}

class C10d : public Communicator {
 public:
  C10d(const Ranks& ranks, Backend host, Backend device, at::Device where, const Watch& watch)
      : ranks_(ranks), collectives_(std::move(host), std::move(device), watch), sums_(collectives_, ranks, where) {}

  int64_t rank() const override { return ranks_.rank; }
  int64_t size() const override { return ranks_.size; }
  int64_t bytes_sent() const override { return sums_.bytes_sent() + bytes_broadcast_; }
  double seconds_waited() const override { return sums_.seconds_waited(); }

  void begin_sum(const at::Tensor& x, at::ScalarType wire) override { sums_.begin_sum(x, wire); }
  void begin_sum_of_part(const at::Tensor& x, at::ScalarType wire, const Arrival& arrival) override {
    sums_.begin_sum_of_part(x, wire, arrival);
  }
  void begin_gather(const at::Tensor& x) override { sums_.begin_gather(x); }
  void finish() override { sums_.finish(); }

  void broadcast(const at::Tensor& x) override {
    TORCH_CHECK(x.is_contiguous(), "broadcast: the tensor must be contiguous");
    if (x.numel() == 0) return;
    std::vector<at::Tensor> tensors{x.detach().view({-1}).view(at::kByte)};  // so that every type can be sent
    if (ranks_.is_first()) bytes_broadcast_ += static_cast<int64_t>(x.nbytes());
    collectives_.wait_on_host(collectives_.begin([&] { return collectives_.backend_of(x).broadcast(tensors); }), x);
  }

  std::function<void()> begin_largest(const at::Tensor& x) override {
    std::vector<at::Tensor> tensors{x};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    const Work work = collectives_.begin([&] { return collectives_.host().allreduce(tensors, options); });
    return [this, work, x] { collectives_.wait(work, x); };
  }

 private:
  const Ranks ranks_;
  const Collectives collectives_;
  Sums sums_;
  int64_t bytes_broadcast_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> connect(const Ranks& ranks, const c10::intrusive_ptr<c10d::Store>& store,
                                      at::Device device, const std::string& address, const Watch& watch) {
  const auto store_of = [&](const char* name) { return c10::make_intrusive<c10d::PrefixStore>(name, store); };
  try {
    return std::make_shared<C10d>(ranks, connect_gloo(ranks, store_of("gloo"), address),
                                  connect_nccl(ranks, store_of("nccl"), device), device, watch);
  } catch (const std::exception& error) {
    throw Error(ExitCode::peer, fmt::format("the processes cannot connect to each other: {}",
                                            watch.lost().value_or(first_line(error.what()))));
  }
}

}  // namespace gpt::distributed
