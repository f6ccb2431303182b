#include "c10d.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef GPT_CUDA
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "gpt/core/error.h"

namespace gpt::distributed {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;
using Work = c10::intrusive_ptr<c10d::Work>;

// The watch knows when another process is lost; a collective may wait for as long as that one saves or writes a sample.
constexpr std::chrono::hours kNoLimit(24 * 365);
// Between two looks at what the watch knows, while a collective is waited for.
constexpr std::chrono::milliseconds kLook(250);

// Gradients are summed in pieces, so that one is sent while another is added.
constexpr int64_t kBucketBytes = 25 << 20;
constexpr int64_t kInFlight = 3;

Backend connect_gloo(const Ranks& ranks, const c10::intrusive_ptr<c10d::Store>& store, const std::string& address) {
  constexpr int kConnections = 4;  // to each process, because one alone does not fill the line
  const auto options = c10d::ProcessGroupGloo::Options::create(kNoLimit);
  const auto device = c10d::ProcessGroupGloo::createDeviceForHostname(address);
  options->devices.assign(kConnections, device);
  options->threads = kConnections;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(ranks.rank), static_cast<int>(ranks.size),
                                                     options);
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
  C10d(const Ranks& ranks, Backend host, Backend device, const Watch& watch)
      : ranks_(ranks), host_(std::move(host)), device_(std::move(device)), watch_(watch) {}

  int64_t rank() const override { return ranks_.rank; }
  int64_t size() const override { return ranks_.size; }
  int64_t bytes_sent() const override { return bytes_sent_; }
  int64_t memory_of_sums() const override { return 2 * kInFlight * kBucketBytes; }

  // Each process adds up its part of a bucket and sends the sum to the others. While one bucket is added the next one arrives.
  void sum(const at::Tensor& x, at::ScalarType wire) override {
    TORCH_CHECK(x.is_contiguous(), "sum: the tensor must be contiguous");
    const at::Tensor flat = x.detach().view({-1});
    const int64_t step = std::max<int64_t>(1, kBucketBytes / static_cast<int64_t>(c10::elementSize(wire)));
    const int64_t count = at::divup(flat.numel(), step);
    const auto bucket = [this](int64_t i) -> Bucket& { return buckets_[static_cast<size_t>(i) % kInFlight]; };
    for (int64_t i = 0; i < count; ++i) {
      if (i >= kInFlight) finish(bucket(i));
      begin_exchange(bucket(i), flat.slice(0, i * step, std::min((i + 1) * step, flat.numel())), wire);
      if (i > 0) add(bucket(i - 1));
    }
    if (count > 0) add(bucket(count - 1));
    for (int64_t i = std::max<int64_t>(0, count - kInFlight); i < count; ++i) finish(bucket(i));
  }

  void broadcast(const at::Tensor& x) override {
    TORCH_CHECK(x.is_contiguous(), "broadcast: the tensor must be contiguous");
    if (x.numel() == 0) return;
    std::vector<at::Tensor> tensors{x.detach().view({-1}).view(at::kByte)};  // so that every type can be sent
    if (ranks_.is_first()) bytes_sent_ += static_cast<int64_t>(x.nbytes());
    wait(begin([&] { return backend_of(x).broadcast(tensors); }));
  }

  std::function<void()> begin_largest(const at::Tensor& x) override {
    std::vector<at::Tensor> tensors{x};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    const Work work = begin([&] { return host_->allreduce(tensors, options); });
    return [this, work] { wait(work); };
  }

 private:
  // A stretch of a sum that is under way. Its memory stays for the next one.
  struct Bucket {
    at::Tensor stretch;  // of the tensor that is summed
    at::Tensor sent,
        received;  // (n) of the type that travels, n divisible by the number of processes; `sent` may be the stretch itself
    at::Tensor own;  // the sum of this process's part
    at::Tensor send_buffer, receive_buffer;
    Work exchange, gather;
  };

  static at::Tensor reuse(at::Tensor& buffer, int64_t count, const at::TensorOptions& options) {
    if (!buffer.defined() || buffer.numel() < count || buffer.scalar_type() != options.dtype().toScalarType() ||
        buffer.device() != options.device())
      buffer = at::empty({count}, options);
    return buffer.narrow(0, 0, count);
  }

  void begin_exchange(Bucket& bucket, const at::Tensor& stretch, at::ScalarType wire) {
    const int64_t count = stretch.numel(), padded = at::divup(count, size()) * size();
    const auto options = stretch.options().dtype(wire);
    bucket.stretch = bucket.sent = stretch;
    if (padded != count || wire != stretch.scalar_type()) {
      bucket.sent = reuse(bucket.send_buffer, padded, options);
      bucket.sent.narrow(0, 0, count).copy_(stretch);
      bucket.sent.narrow(0, count, padded - count).zero_();
    }
    bucket.received = reuse(bucket.receive_buffer, padded, options);
    std::vector<int64_t> even;
    bucket.exchange =
        begin([&] { return backend_of(stretch).alltoall_base(bucket.received, bucket.sent, even, even); });
    count_part(bucket);
  }

  void add(Bucket& bucket) {
    wait(bucket.exchange);
    const at::Tensor parts = bucket.received.view({size(), -1});
    const bool is_narrow = c10::elementSize(parts.scalar_type()) < 4;
    const at::Tensor sums = is_narrow ? parts.to(at::kFloat) : parts;
    add_in_pairs(sums);
    bucket.own = sums[0].to(parts.scalar_type());
    bucket.gather = begin([&] { return backend_of(bucket.sent)._allgather_base(bucket.sent, bucket.own); });
    count_part(bucket);
  }

  void finish(Bucket& bucket) {
    wait(bucket.gather);
    if (bucket.sent.data_ptr() != bucket.stretch.data_ptr())
      bucket.stretch.copy_(bucket.sent.narrow(0, 0, bucket.stretch.numel()));
    bucket.stretch = bucket.sent = bucket.received = bucket.own = at::Tensor();
    bucket.exchange = bucket.gather = {};
  }

  // One part of a bucket goes to each of the others.
  void count_part(const Bucket& bucket) {
    bytes_sent_ += static_cast<int64_t>(bucket.sent.nbytes()) * (size() - 1) / size();
  }

  c10d::Backend& backend_of(const at::Tensor& x) { return x.is_cpu() ? *host_ : *device_; }

  template <typename Begin>
  Work begin(const Begin& begin) {
    require_all();
    try {
      return begin();
    } catch (const std::exception& error) { fail(error); }
  }

  void require_all() const {
    if (const auto lost = watch_.lost()) throw Error(ExitCode::peer, *lost);
  }

  // The connection breaks when another process is killed; that one has a name only once the watch knows.
  [[noreturn]] void fail(const std::exception& error) const {
    if (dynamic_cast<const Error*>(&error)) throw;
    const std::string lost = watch_.await_lost();
    throw Error(ExitCode::peer, watch_.lost() ? lost : fmt::format("{}: {}", lost, first_line(error.what())));
  }

  void wait(const Work& work) const {
    while (true) {
      try {
        work->wait(kLook);
        return;
      } catch (const std::exception& error) {
        if (work->isCompleted()) fail(error);  // otherwise it has only not ended yet
      }
      require_all();
    }
  }

  const Ranks ranks_;
  const Backend host_, device_;
  const Watch& watch_;
  std::array<Bucket, kInFlight> buckets_;
  int64_t bytes_sent_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> connect(const Ranks& ranks, const c10::intrusive_ptr<c10d::Store>& store,
                                      at::Device device, const std::string& address, const Watch& watch) {
  const auto store_of = [&](const char* name) { return c10::make_intrusive<c10d::PrefixStore>(name, store); };
  try {
    return std::make_shared<C10d>(ranks, connect_gloo(ranks, store_of("gloo"), address),
                                  connect_nccl(ranks, store_of("nccl"), device), watch);
  } catch (const std::exception& error) {
    throw Error(ExitCode::peer, fmt::format("the processes cannot connect to each other: {}",
                                            watch.lost().value_or(first_line(error.what()))));
  }
}

}  // namespace gpt::distributed
