#include "gpt/data/data_loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gpt/device/device.h"
#include "gpt/ops/token_gather.h"
#include "ordered_prefetcher.h"
#include "sample_order.h"

namespace gpt {
namespace {

// The tokens as a tensor over the memory they lie in, which lives as long as the tensor.
at::Tensor as_tensor(const Tokens& tokens) {
  return at::from_blob(const_cast<void*>(tokens.data()), {tokens.size()}, [tokens](void*) {},
                       at::TensorOptions(tokens.width() == 2 ? at::kUInt16 : at::kInt));
}

at::Tensor empty_int64(at::IntArrayRef shape, bool pinned) {
  return at::empty(shape, at::TensorOptions(at::kLong).pinned_memory(pinned));
}

// (2, B, T) in host memory: inputs, then targets.
at::Tensor host_pair(const at::Tensor& tokens, const at::Tensor& starts, int64_t block_size, bool pinned) {
  at::Tensor pair = empty_int64({2, starts.size(0), block_size}, pinned);
  ops::token_gather_out(pair.select(0, 0), pair.select(0, 1), tokens, starts);
  return pair;
}

Batch to_device(const at::Tensor& pair, at::Device device) {
  const at::Tensor there = pair.to(device, /*non_blocking=*/true);
  return {there.select(0, 0), there.select(0, 1)};
}

bool stays_resident(Resident setting, const Tokens& tokens, at::Device device) {
  if (setting != Resident::automatic) return setting == Resident::on;
  return device.is_cpu() || tokens.size() * tokens.width() <= free_bytes(device) / 8;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

struct DataLoader::Impl {
  const int64_t batch_size, block_size;
  const at::Device device;
  const bool resident, pinned, persistent_workers;
  const int64_t workers, ahead;
  const at::Tensor tokens;  // (N) on the device when resident, else in host memory
  const SampleOrder order;
  DataPosition position;
  std::unique_ptr<OrderedPrefetcher<at::Tensor>> prefetcher;  // last: its threads use what is above

  int64_t batches_left(const DataPosition& from) const { return ceil_div(order.samples_per_epoch() - from.sample, batch_size); }

  int64_t size_at(const DataPosition& at) const { return std::min(batch_size, order.samples_per_epoch() - at.sample); }

  // The position `batches` batches after `from`.
  DataPosition advanced(const DataPosition& from, int64_t batches) const {
    const int64_t left = batches_left(from);
    if (batches < left) return {from.epoch, from.sample + batches * batch_size};
    const int64_t per_epoch = batches_left({});
    return {from.epoch + 1 + (batches - left) / per_epoch, (batches - left) % per_epoch * batch_size};
  }

  at::Tensor starts(const DataPosition& at) const {
    at::Tensor result = empty_int64({size_at(at)}, pinned);
    order.starts(at.epoch, at.sample, result.size(0), result.data_ptr<int64_t>());
    return result;
  }

  at::Tensor build(const DataPosition& at) const { return host_pair(tokens, starts(at), block_size, pinned); }

  void start_workers() {
    const int64_t count = persistent_workers ? std::numeric_limits<int64_t>::max() : batches_left(position);
    prefetcher = std::make_unique<OrderedPrefetcher<at::Tensor>>(
        workers, ahead, count, [this, from = position](int64_t batch) { return build(advanced(from, batch)); });
  }

  Batch next() {
    if (resident) {
      // On a CPU too: gathering from memory takes microseconds, less than handing the batch over from another thread.
      auto [inputs, targets] = ops::token_gather(tokens, starts(position).to(device, /*non_blocking=*/true), block_size);
      return {std::move(inputs), std::move(targets)};
    }
    if (workers == 0) return to_device(build(position), device);
    if (!prefetcher) start_workers();
    return to_device(prefetcher->next(), device);
  }
};

DataLoader::DataLoader(Tokens tokens, const DataConfig& config, int64_t batch_size, int64_t block_size, uint64_t seed,
                       at::Device device) {
  TORCH_CHECK(batch_size > 0 && block_size > 0, "DataLoader: batch_size ", batch_size, ", block_size ", block_size);
  TORCH_CHECK(tokens.size() > block_size, "DataLoader: ", tokens.size(), " tokens hold no sample of ", block_size, " + 1");
  const bool resident = stays_resident(config.resident, tokens, device);
  const at::Tensor host = as_tensor(tokens);
  impl_.reset(new Impl{
      .batch_size = batch_size,
      .block_size = block_size,
      .device = device,
      .resident = resident,
      .pinned = config.pin_memory && device.is_cuda(),
      .persistent_workers = config.persistent_workers,
      .workers = config.num_workers,
      .ahead = std::max<int64_t>(1, config.num_workers * config.prefetch_factor),
      .tokens = resident ? host.to(device) : host,
      .order = SampleOrder(tokens.size(), block_size, seed),
      .position = {},
      .prefetcher = nullptr,
  });
}

DataLoader::~DataLoader() = default;

Batch DataLoader::next() {
  Batch batch = impl_->next();
  impl_->position = impl_->advanced(impl_->position, 1);
  const bool epoch_ended = impl_->position.sample == 0;
  if (epoch_ended && !impl_->persistent_workers) impl_->prefetcher.reset();
  return batch;
}

DataPosition DataLoader::position() const { return impl_->position; }

void DataLoader::seek(const DataPosition& position) {
  TORCH_CHECK(position.epoch >= 0 && position.sample >= 0 && position.sample < samples_per_epoch(), "DataLoader: sample ",
              position.sample, " of epoch ", position.epoch, " where an epoch has ", samples_per_epoch());
  impl_->prefetcher.reset();  // what it built ahead belongs to the old position
  impl_->position = position;
}

int64_t DataLoader::samples_per_epoch() const { return impl_->order.samples_per_epoch(); }
int64_t DataLoader::batches_per_epoch() const { return impl_->batches_left({}); }
int64_t DataLoader::batch_size_at(const DataPosition& position) const { return impl_->size_at(position); }
bool DataLoader::resident() const { return impl_->resident; }

SequentialBatches::SequentialBatches(Tokens tokens, int64_t batch_size, int64_t block_size, at::Device device)
    : tokens_(std::move(tokens)), batch_size_(batch_size), block_size_(block_size), device_(device) {
  TORCH_CHECK(batch_size > 0 && block_size > 0, "SequentialBatches: batch_size ", batch_size, ", block_size ", block_size);
}

int64_t SequentialBatches::size() const {
  const int64_t targets = std::max<int64_t>(0, tokens_.size() - 1);
  return ceil_div(targets / block_size_, batch_size_) + (targets % block_size_ > 0);
}

Batch SequentialBatches::operator[](int64_t i) const {
  TORCH_CHECK(i >= 0 && i < size(), "SequentialBatches: batch ", i, " of ", size());
  const int64_t windows = (tokens_.size() - 1) / block_size_;
  const int64_t first = i * batch_size_;
  const bool tail = first >= windows;
  const int64_t T = tail ? (tokens_.size() - 1) % block_size_ : block_size_;
  const int64_t B = tail ? 1 : std::min(batch_size_, windows - first);

  const at::Tensor starts = empty_int64({B}, false);
  for (int64_t b = 0; b < B; ++b) {
    starts.data_ptr<int64_t>()[b] = (tail ? windows : first + b) * block_size_;
  }
  return to_device(host_pair(as_tensor(tokens_), starts, T, device_.is_cuda()), device_);
}

}  // namespace gpt
