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

at::Tensor reuse(at::Tensor& buffer, int64_t count, const at::TensorOptions& options) {
  if (!buffer.defined() || buffer.numel() < count || buffer.scalar_type() != options.dtype().toScalarType() ||
      buffer.device() != options.device())
    buffer = at::empty({count}, options);
  return buffer.narrow(0, 0, count);
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

Sums::Sums(const Collectives& collectives, int64_t size, at::Device device)
    : collectives_(collectives), size_(size), device_(device) {
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

int64_t Sums::memory() { return 2 * static_cast<int64_t>(kInFlight) * kStretchBytes; }

void Sums::begin(const at::Tensor& x, at::ScalarType wire) {
  TORCH_CHECK(x.is_contiguous(), "sum: the tensor must be contiguous");
  const at::Tensor flat = x.detach().view({-1});
  const auto ready = x.is_cpu() ? nullptr : mark(current_stream(device_));
  const int64_t step = kStretchBytes / static_cast<int64_t>(c10::elementSize(wire));
  for (int64_t first = 0; first < flat.numel(); first += step)
    tell({flat.slice(0, first, std::min(first + step, flat.numel())), wire, ready});
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
  tasks_.emplace_back();
  changed_.notify_all();
  changed_.wait(lock, [this] { return has_ended_all_; });
  has_ended_all_ = false;
  seconds_waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (error_) std::rethrow_exception(error_);
  if (done_) done_->block(*current_stream(device_));
}

std::optional<Sums::Task> Sums::next_task() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_closing_ || !tasks_.empty(); });
  if (tasks_.empty()) return std::nullopt;
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
    if (task->stretch.defined()) continue;
    const std::lock_guard lock(mutex_);
    has_ended_all_ = true;
    changed_.notify_all();
  }
}

void Sums::run(const Task& task) {
  if (!task.stretch.defined()) return end_all();
  if (task.ready) task.ready->block(*stream_);
  if (begun_ >= static_cast<int64_t>(kInFlight)) end(bucket(begun_));
  begin_exchange(bucket(begun_), task);
  if (begun_ > 0) add(bucket(begun_ - 1));
  ++begun_;
}

void Sums::begin_exchange(Bucket& bucket, const Task& task) {
  const int64_t count = task.stretch.numel(), padded = at::divup(count, size_) * size_;
  const auto options = task.stretch.options().dtype(task.wire);
  bucket.stretch = bucket.sent = task.stretch;
  if (padded != count || task.wire != task.stretch.scalar_type()) {
    bucket.sent = reuse(bucket.send_buffer, padded, options);
    bucket.sent.narrow(0, 0, count).copy_(task.stretch);
    bucket.sent.narrow(0, count, padded - count).zero_();
  }
  bucket.received = reuse(bucket.receive_buffer, padded, options);
  std::vector<int64_t> even;
  bucket.exchange = collectives_.begin(
      [&] { return collectives_.backend_of(bucket.sent).alltoall_base(bucket.received, bucket.sent, even, even); });
  count_part(bucket);
}

void Sums::add(Bucket& bucket) {
  collectives_.wait(bucket.exchange);
  const at::Tensor parts = bucket.received.view({size_, -1});
  const bool is_narrow = c10::elementSize(parts.scalar_type()) < 4;
  const at::Tensor sums = is_narrow ? parts.to(at::kFloat) : parts;
  add_in_pairs(sums);
  bucket.own = sums[0].to(parts.scalar_type());
  bucket.gather =
      collectives_.begin([&] { return collectives_.backend_of(bucket.sent)._allgather_base(bucket.sent, bucket.own); });
  count_part(bucket);
}

void Sums::end(Bucket& bucket) {
  collectives_.wait(bucket.gather);
  if (bucket.sent.data_ptr() != bucket.stretch.data_ptr())
    bucket.stretch.copy_(bucket.sent.narrow(0, 0, bucket.stretch.numel()));
  bucket.stretch = bucket.sent = bucket.received = bucket.own = at::Tensor();
  bucket.exchange = bucket.gather = {};
}

void Sums::end_all() {
  if (begun_ > 0) add(bucket(begun_ - 1));
  for (int64_t i = std::max<int64_t>(0, begun_ - static_cast<int64_t>(kInFlight)); i < begun_; ++i) end(bucket(i));
  begun_ = 0;
  done_ = mark(stream_);
}

// One part of a bucket goes to each of the others.
void Sums::count_part(const Bucket& bucket) {
  bytes_sent_ += static_cast<int64_t>(bucket.sent.nbytes()) * (size_ - 1) / size_;
}

}  // namespace gpt::distributed
