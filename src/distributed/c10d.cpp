#include "c10d.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef GPT_CUDA
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <ATen/ops/zeros.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/surroundings.h"
#include "meeting.h"
#include "sums.h"

namespace gpt::distributed {
namespace {

// The watch knows when another process is lost; a collective may wait for as long as that one saves or writes a sample.
constexpr std::chrono::hours kNoLimit(24 * 365);

// `connections`: to each process.
Backend connect_gloo(const Ranks& ranks, const c10::intrusive_ptr<c10d::Store>& store,
                     const std::vector<std::string>& addresses, int connections) {
  constexpr std::chrono::minutes kToConnect(1);
  const auto options = c10d::ProcessGroupGloo::Options::create(kToConnect);
  for (const std::string& address : addresses)
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  const size_t interfaces = options->devices.size();
  for (size_t i = interfaces; i < static_cast<size_t>(connections); ++i)
    options->devices.push_back(options->devices[i % interfaces]);
  options->devices.resize(static_cast<size_t>(connections));  // as many as the others have
  options->threads = connections;
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
  // `make_another`: as another(), once all are there.
  C10d(const Ranks& ranks, Backend host, Backend device, at::Device where, const Watch& watch,
       std::function<std::shared_ptr<Communicator>()> make_another)
      : ranks_(ranks),
        make_another_(std::move(make_another)),
        collectives_(std::move(host), std::move(device), watch),
        sums_(collectives_, ranks, where) {}

  int64_t rank() const override { return ranks_.rank; }
  int64_t size() const override { return ranks_.size; }
  int64_t bytes_sent() const override { return sums_.bytes_sent() + bytes_broadcast_ + bytes_exchanged_; }
  double seconds_waited() const override { return sums_.seconds_waited() + seconds_waited_; }

  void begin_sum(const at::Tensor& x, at::ScalarType wire) override { sums_.begin_sum(x, wire); }
  void begin_sum_of_part(const at::Tensor& x, at::ScalarType wire, const Arrival& arrival, int64_t owner) override {
    sums_.begin_sum_of_part(x, wire, arrival, owner);
  }
  void begin_gather(const at::Tensor& x, int64_t owner) override { sums_.begin_gather(x, owner); }
  std::vector<std::function<void()>> begin_gathers(const std::vector<Gathering>& all) override {
    return sums_.begin_gathers(all);
  }
  void finish() override { sums_.finish(); }

  void broadcast(const at::Tensor& x) override {
    if (x.numel() > 0) collectives_.wait_on_host(broadcast_from(0, x), x);
  }

  std::function<void()> begin_broadcast(const at::Tensor& x, int64_t from) override {
    return [this, x, work = broadcast_from(from, x)] {
      const auto begin = std::chrono::steady_clock::now();
      collectives_.wait(work, x);
      seconds_waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
  }

  void exchange(const at::Tensor& received, const std::vector<int64_t>& from, const at::Tensor& sent,
                const std::vector<int64_t>& to) override {
    at::Tensor into = received, out = sent;
    std::vector<int64_t> arrive = from, leave = to;
    bytes_exchanged_ += sent.numel() - to[static_cast<size_t>(ranks_.rank)];
    collectives_.wait(begin([&] { return collectives_.host().alltoall_base(into, out, arrive, leave); }), received);
  }

  // Connecting has a limit of time, so that all must be there before. It lives as long as this one, which is kept where a process is lost.
  std::shared_ptr<Communicator> another() override {
    begin_largest(at::zeros({1}, at::kLong))();
    return others_.emplace_back(make_another_());
  }

  std::function<void()> begin_largest(const at::Tensor& x) override {
    std::vector<at::Tensor> tensors{x};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    const Work work = begin([&] { return collectives_.host().allreduce(tensors, options); });
    return [this, work, x] { collectives_.wait(work, x); };
  }

 private:
  // The calls of a backend have one order in all processes: what begin_gathers() has begun comes first.
  template <typename Start>
  Work begin(const Start& start) {
    sums_.finish_gathers();
    return collectives_.begin(start);
  }

  Work broadcast_from(int64_t rank, const at::Tensor& x) {
    TORCH_CHECK(x.is_contiguous(), "broadcast: the tensor must be contiguous");
    std::vector<at::Tensor> tensors{x.detach().view({-1}).view(at::kByte)};  // so that every type can be sent
    if (ranks_.rank == rank) bytes_broadcast_ += static_cast<int64_t>(x.nbytes());
    c10d::BroadcastOptions options;
    options.rootRank = rank;
    return begin([&] { return collectives_.backend_of(x).broadcast(tensors, options); });
  }

  const Ranks ranks_;
  const std::function<std::shared_ptr<Communicator>()> make_another_;
  const Collectives collectives_;
  Sums sums_;
  std::vector<std::shared_ptr<Communicator>> others_;
  int64_t bytes_broadcast_ = 0, bytes_exchanged_ = 0;
  double seconds_waited_ = 0;  // for what was broadcast
};

StorePointer store_of(const std::string& name, const StorePointer& store) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

std::shared_ptr<Communicator> connect(const Ranks& ranks, const StorePointer& store, at::Device device,
                                      const std::vector<std::string>& addresses, const Watch& watch, int connections) {
  constexpr int kOfAnother = 1;
  const auto make_another = [=, &watch, made = 0]() mutable {
    return connect(ranks, store_of(fmt::format("another/{}", made++), store), at::kCPU, addresses, watch, kOfAnother);
  };
  try {
    const Backend gloo = unless_stopped(
        [=, of_gloo = store_of("gloo", store)] { return connect_gloo(ranks, of_gloo, addresses, connections); });
    return std::make_shared<C10d>(ranks, gloo, connect_nccl(ranks, store_of("nccl", store), device), device, watch,
                                  make_another);
  } catch (const Error&) { throw; } catch (const std::exception& error) {
    if (surroundings::is_lack_of_threads(error)) throw;
    throw Error(ExitCode::peer, fmt::format("the processes cannot connect to each other: {}",
                                            watch.lost().value_or(first_line(error.what()))));
  }
}

}  // namespace

std::shared_ptr<Communicator> connect(const Ranks& ranks, const c10::intrusive_ptr<c10d::Store>& store,
                                      at::Device device, const std::vector<std::string>& addresses,
                                      const Watch& watch) {
  constexpr int kConnections = 4;  // because one alone does not fill the line
  return connect(ranks, store, device, addresses, watch, kConnections);
}

}  // namespace gpt::distributed
