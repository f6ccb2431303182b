#include "sums.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "gpt/device/cpu_threads.h"
#include "gpt/distributed/communicator.h"

namespace gpt::distributed {
namespace {

// A buffer of bytes, so that tensors of all types use it.
at::Tensor reuse(at::Tensor& buffer, int64_t count, const at::TensorOptions& options) {
  const auto type = options.dtype().toScalarType();
  const int64_t bytes = count * static_cast<int64_t>(c10::elementSize(type));
  if (!buffer.defined() || buffer.numel() < bytes) buffer = at::empty({bytes}, options.dtype(at::kByte));
  return buffer.narrow(0, 0, bytes).view(type);
}

// What the stream has been given so far. Null on a CPU, which does nothing later.
std::shared_ptr<c10::Event> mark(const std::optional<c10::Stream>& stream) {
  if (!stream) return nullptr;
  auto event = std::make_shared<c10::Event>(stream->device_type());
  event->record(*stream);
  return event;
}

std::optional<c10::Stream> current_stream(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

Sums::Sums(const Collectives& collectives, const Ranks& ranks, at::Device device)
    : collectives_(collectives), ranks_(ranks), device_(device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  thread_ = std::thread([this] { work(); });
}

Sums::~Sums() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Sums::begin_sum(const at::Tensor& x, at::ScalarType wire) {
  TORCH_CHECK(x.is_contiguous(), "sum: the tensor must be contiguous");
  const at::Tensor flat = x.detach().view({-1});
  const auto ready = x.is_cpu() ? nullptr : mark(current_stream(device_));
  const int64_t step = kStretchBytes / static_cast<int64_t>(c10::elementSize(wire));
  for (int64_t first = 0; first < flat.numel(); first += step)
    tell({Kind::sum, flat.slice(0, first, std::min(first + step, flat.numel())), wire, ready});
}

void Sums::begin_sum_of_part(const at::Tensor& x, at::ScalarType wire, const Arrival& arrival) {
  tell_stretch(Kind::sum_of_part, x, wire, arrival);
}

void Sums::begin_gather(const at::Tensor& x) { tell_stretch(Kind::gather, x, x.scalar_type()); }

void Sums::tell_stretch(Kind kind, const at::Tensor& x, at::ScalarType wire, const Arrival& arrival) {
  TORCH_CHECK(x.dim() == 1 && x.is_contiguous() && x.nbytes() <= kStretchBytes, "a stretch has at most ", kStretchBytes,
              " bytes in a row");
  tell({kind, x.detach(), wire, x.is_cpu() ? nullptr : mark(current_stream(device_)), arrival});
}

void Sums::tell(Task task) {
  const std::lock_guard lock(mutex_);
  is_idle_ = false;
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void Sums::finish() {
  if (std::exchange(is_idle_, true)) return;
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  tasks_.push_back({Kind::end_all});
  changed_.notify_all();
  changed_.wait(lock, [this] { return has_ended_all_; });
  has_ended_all_ = false;
  seconds_waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (error_) std::rethrow_exception(error_);
  if (!done_) return;
  done_->block(*current_stream(device_));
  // Later the host would wait in the driver, where it could not learn that another process is lost.
  collectives_.wait_until([this] { return done_->query(); });
}

std::optional<Sums::Task> Sums::next_task() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_closing_ || !tasks_.empty(); });
  if (is_closing_) return std::nullopt;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

void Sums::work() {
  use_one_cpu_thread();
  std::optional<c10::StreamGuard> on_own_stream;
  if (stream_) on_own_stream.emplace(*stream_);
  while (const std::optional<Task> task = next_task()) {
    try {
      if (!error_) run(*task);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    if (task->kind != Kind::end_all) continue;
    const std::lock_guard lock(mutex_);
    has_ended_all_ = true;
    changed_.notify_all();
  }
}

void Sums::run(const Task& task) {
  if (task.kind == Kind::end_all) return end_all();
  if (task.ready) task.ready->block(*stream_);
  if (begun_ >= kStretchesInFlight) end(bucket(begun_));
  begin(bucket(begun_), task);
  if (begun_ > 0) add(bucket(begun_ - 1));
  ++begun_;
}

void Sums::begin(Bucket& bucket, const Task& task) {
  bucket.kind = task.kind;
  bucket.arrival = task.arrival;
  bucket.stretch = bucket.sent = task.stretch;
  const int64_t count = task.stretch.numel(), padded = part_of(count, 0, ranks_.size).end * ranks_.size;
  if (padded != count || task.wire != task.stretch.scalar_type()) {
    bucket.sent = reuse(bucket.buffers(task.stretch).sent, padded, task.stretch.options().dtype(task.wire));
    bucket.sent.narrow(0, 0, count).copy_(task.stretch);
    bucket.sent.narrow(0, count, padded - count).zero_();
  }
  if (task.kind != Kind::gather) return exchange(bucket);
  bucket.own = bucket.sent.view({ranks_.size, -1})[ranks_.rank].clone();
  gather(bucket);
}

void Sums::exchange(Bucket& bucket) {
  bucket.received = reuse(bucket.buffers(bucket.sent).received, bucket.sent.numel(), bucket.sent.options());
  std::vector<int64_t> even;
  bucket.exchange = collectives_.begin(
      [&] { return collectives_.backend_of(bucket.sent).alltoall_base(bucket.received, bucket.sent, even, even); });
  count_part(bucket);
}

void Sums::gather(Bucket& bucket) {
  bucket.gather =
      collectives_.begin([&] { return collectives_.backend_of(bucket.sent)._allgather_base(bucket.sent, bucket.own); });
  count_part(bucket);
}

void Sums::add(Bucket& bucket) {
  if (bucket.kind == Kind::gather) return;
  collectives_.wait(bucket.exchange, bucket.sent);
  const at::Tensor parts = bucket.received.view({ranks_.size, -1});
  if (bucket.arrival.values.dim() == 2) return arrive(bucket, parts);
  const bool is_narrow = c10::elementSize(parts.scalar_type()) < 4;
  const at::Tensor sums = is_narrow ? parts.to(at::kFloat) : parts;
  add_in_pairs(sums);
  bucket.own = sums[0].to(parts.scalar_type());
  if (bucket.kind == Kind::sum) return gather(bucket);
  arrive(bucket, bucket.own);
}

// The last dimension of `values` may be padded.
void Sums::arrive(const Bucket& bucket, const at::Tensor& values) const {
  const auto& [into, adds] = bucket.arrival;
  const at::Tensor arrived = values.narrow(-1, 0, into.size(-1));
  adds ? into.add_(arrived) : into.copy_(arrived);
}

void Sums::end(Bucket& bucket) {
  if (bucket.gather) {
    collectives_.wait(bucket.gather, bucket.sent);
    if (bucket.sent.data_ptr() != bucket.stretch.data_ptr())
      bucket.stretch.copy_(bucket.sent.narrow(0, 0, bucket.stretch.numel()));
  }
  bucket.stretch = bucket.sent = bucket.received = bucket.own = at::Tensor();
  bucket.arrival = {};
  bucket.exchange = bucket.gather = {};
}

void Sums::end_all() {
  if (begun_ > 0) add(bucket(begun_ - 1));
  for (int64_t i = std::max<int64_t>(0, begun_ - kStretchesInFlight); i < begun_; ++i) end(bucket(i));
  begun_ = 0;
  done_ = mark(stream_);
}

// A part of what is sent goes to each of the others.
void Sums::count_part(const Bucket& bucket) {
  bytes_sent_ += static_cast<int64_t>(bucket.sent.nbytes()) * (ranks_.size - 1) / ranks_.size;
}

}  // namespace gpt::distributed
