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

// An owner gets as much at a time from all others together as each process does of a stretch that has none.
void Sums::begin_sum_of_part(const at::Tensor& x, at::ScalarType wire, const Arrival& arrival, int64_t owner) {
  if (owner == kEach) return tell_stretch(Kind::sum_of_part, x, wire, arrival);
  const int64_t step = owned_stretch_bytes(ranks_.size) / static_cast<int64_t>(c10::elementSize(wire));
  for (int64_t first = 0; first < x.numel(); first += step) {
    const int64_t count = std::min(step, x.numel() - first);
    Arrival of_step = arrival;
    if (owner == ranks_.rank) of_step.values = arrival.values.narrow(-1, first, count);
    tell_stretch(Kind::sum_of_part, x.narrow(0, first, count), wire, of_step, owner);
  }
}

void Sums::begin_gather(const at::Tensor& x, int64_t owner) { tell_gather(x, owner, nullptr); }

// A stretch ends when a later one needs its place. Nobody may come after the last ones, so they are told to end.
std::vector<std::function<void()>> Sums::begin_gathers(const std::vector<Gathering>& all) {
  std::vector<std::function<void()>> waits;
  for (const auto& [x, owner] : all) {
    last_of_gathers_ = std::make_shared<Ticket>();
    tell_gather(x, owner, last_of_gathers_);
    waits.emplace_back([this, ticket = last_of_gathers_] { wait_for(*ticket); });
  }
  tell({Kind::end_all});
  return waits;
}

// They arrive in their order: with the last stretch all are there.
void Sums::tell_gather(const at::Tensor& x, int64_t owner, const std::shared_ptr<Ticket>& ticket) {
  if (owner == kEach) return tell_stretch(Kind::gather, x, x.scalar_type(), {}, owner, ticket);
  const int64_t step = kStretchBytes / x.element_size();
  for (int64_t first = 0; first < x.numel(); first += step) {
    const int64_t count = std::min(step, x.numel() - first);
    tell_stretch(Kind::gather, x.narrow(0, first, count), x.scalar_type(), {}, owner,
                 first + count == x.numel() ? ticket : nullptr);
  }
}

void Sums::tell_stretch(Kind kind, const at::Tensor& x, at::ScalarType wire, const Arrival& arrival, int64_t owner,
                        std::shared_ptr<Ticket> ticket) {
  TORCH_CHECK(x.dim() == 1 && x.is_contiguous() && x.nbytes() <= kStretchBytes, "a stretch has at most ", kStretchBytes,
              " bytes in a row");
  const auto ready = x.is_cpu() ? nullptr : mark(current_stream(device_));
  tell({kind, x.detach(), wire, ready, arrival, owner, std::move(ticket)});
}

void Sums::tell(Task task) {
  const std::lock_guard lock(mutex_);
  is_idle_ = false;
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void Sums::finish() {
  if (is_idle_) return;
  Task end{Kind::end_all};
  end.ticket = std::make_shared<Ticket>();
  tell(end);
  is_idle_ = true;
  wait_for(*end.ticket);
}

void Sums::finish_gathers() {
  if (const auto last = std::exchange(last_of_gathers_, nullptr)) wait_for(*last);
}

void Sums::wait_for(const Ticket& ticket) {
  const auto begin = std::chrono::steady_clock::now();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ticket.is_there || error_; });
    if (error_) std::rethrow_exception(error_);
  }
  seconds_waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!ticket.done) return;
  ticket.done->block(*current_stream(device_));
  // Later the host would wait in the driver, where it could not learn that another process is lost.
  collectives_.wait_until([&] { return ticket.done->query(); });
}

void Sums::give_out(const std::shared_ptr<Ticket>& ticket) {
  if (!ticket) return;
  auto done = mark(stream_);
  const std::lock_guard lock(mutex_);
  ticket->done = std::move(done), ticket->is_there = true;
  changed_.notify_all();
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
  device::use_one_cpu_thread();
  std::optional<c10::StreamGuard> on_own_stream;
  if (stream_) on_own_stream.emplace(*stream_);
  while (const std::optional<Task> task = next_task()) {
    try {
      if (!error_) run(*task);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
    }
  }
}

void Sums::run(const Task& task) {
  if (task.kind == Kind::end_all) return end_all(), give_out(task.ticket);
  if (task.ready) task.ready->block(*stream_);
  if (begun_ >= kStretchesInFlight) end(bucket(begun_));
  begin(bucket(begun_), task);
  if (begun_ > 0) add(bucket(begun_ - 1));
  ++begun_;
}

void Sums::begin(Bucket& bucket, const Task& task) {
  bucket.kind = task.kind;
  bucket.arrival = task.arrival;
  bucket.ticket = task.ticket;
  bucket.stretch = bucket.sent = task.stretch;
  bucket.owner = task.owner;
  const int64_t count = task.stretch.numel(),
                padded = task.owner == kEach ? part_of(count, 0, ranks_.size).end * ranks_.size : count;
  if (padded != count || task.wire != task.stretch.scalar_type()) {
    bucket.sent = reuse(bucket.buffers(task.stretch).sent, padded, task.stretch.options().dtype(task.wire));
    bucket.sent.narrow(0, 0, count).copy_(task.stretch);
    bucket.sent.narrow(0, count, padded - count).zero_();
  }
  if (task.kind != Kind::gather) return exchange(bucket);
  if (task.owner != kEach) return broadcast(bucket);
  bucket.own = bucket.sent.view({ranks_.size, -1})[ranks_.rank].clone();
  gather(bucket);
}

void Sums::exchange(Bucket& bucket) {
  const int64_t count = bucket.sent.numel();
  std::vector<int64_t> from, to;  // nothing: equal parts
  int64_t arrives = count;
  if (bucket.owner != kEach) {
    from.assign(static_cast<size_t>(ranks_.size), is_of_another(bucket) ? 0 : count);
    to.assign(static_cast<size_t>(ranks_.size), 0);
    to[static_cast<size_t>(bucket.owner)] = count;
    arrives = from.front() * ranks_.size;
  }
  bucket.received = reuse(bucket.buffers(bucket.sent).received, arrives, bucket.sent.options());
  bucket.exchange = collectives_.begin(
      [&] { return collectives_.backend_of(bucket.sent).alltoall_base(bucket.received, bucket.sent, from, to); });
  count_part(bucket);
}

void Sums::broadcast(Bucket& bucket) {
  std::vector<at::Tensor> tensors{bucket.sent};
  c10d::BroadcastOptions options;
  options.rootRank = bucket.owner;
  bucket.gather = collectives_.begin([&] { return collectives_.backend_of(bucket.sent).broadcast(tensors, options); });
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
  if (is_of_another(bucket)) return;
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
  give_out(std::exchange(bucket.ticket, nullptr));
}

void Sums::end_all() {
  if (begun_ > 0) add(bucket(begun_ - 1));
  for (int64_t i = std::max<int64_t>(0, begun_ - kStretchesInFlight); i < begun_; ++i) end(bucket(i));
  begun_ = 0;
}

// A part of what is sent goes to each of the others; or all of it to its owner, or from there to all others.
void Sums::count_part(const Bucket& bucket) {
  const auto bytes = static_cast<int64_t>(bucket.sent.nbytes());
  if (bucket.owner == kEach)
    bytes_sent_ += bytes * (ranks_.size - 1) / ranks_.size;
  else if (is_of_another(bucket))
    bytes_sent_ += bucket.kind == Kind::gather ? 0 : bytes;
  else if (bucket.kind == Kind::gather)
    bytes_sent_ += bytes * (ranks_.size - 1);
}

}  // namespace gpt::distributed
