#include "gpt/batches/data_loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "gpt/core/ordered_prefetcher.h"
#include "gpt/device/device.h"
#include "gpt/ops/token_gather.h"
#include "transfer.h"

namespace gpt {
namespace {

// The tokens as a tensor over the memory they lie in, which lives as long as the tensor.
at::Tensor as_tensor(const Tokens& tokens) {
  return at::from_blob(
      const_cast<void*>(tokens.data()), {tokens.size()}, [tokens](void*) {},
      at::TensorOptions(tokens.width() == 2 ? at::kUInt16 : at::kInt));
}

at::Tensor empty_int64(at::IntArrayRef shape, bool pinned) {
  return at::empty(shape, at::TensorOptions(at::kLong).pinned_memory(pinned));
}

at::Tensor as_tensor(const std::vector<int64_t>& starts, bool pinned) {
  at::Tensor result = empty_int64({std::ssize(starts)}, pinned);
  std::copy(starts.begin(), starts.end(), result.data_ptr<int64_t>());
  return result;
}

// Inputs and targets of a (2, B, T) pair.
Batch halves(const at::Tensor& pair) { return {pair.select(0, 0), pair.select(0, 1)}; }

}  // namespace

bool stays_resident(Resident setting, const std::vector<Tokens>& sources, double free_bytes) {
  constexpr double kShare = 1.0 / 8;
  if (setting != Resident::automatic) return setting == Resident::on;
  int64_t bytes = 0;
  for (const Tokens& tokens : sources) bytes += tokens.bytes();
  return static_cast<double>(bytes) <= kShare * free_bytes;
}

struct DataLoader::Impl {
  const at::Device device;
  const bool resident, pinned, persistent_workers;
  const int64_t workers, ahead;
  const int64_t batches_of_stages;  // batches of the whole run; 0 where it goes epoch after epoch
  const SampleSchedule schedule;
  std::vector<at::Tensor> sources;  // (N) each, on the device when resident, else in host memory
  DataPosition position;
  std::unique_ptr<OrderedPrefetcher<Transfer>> prefetcher;  // last: its threads use what is above

  BatchShape shape(const DataPosition& at) const {
    return {schedule.batch_size(at), schedule.block_size(at), schedule.attention_window(at)};
  }

  // Fills a batch that lies where the sources do.
  void build(const DataPosition& at, const Batch& batch) const {
    int64_t row = 0;
    for (const auto& [source, starts] : schedule.windows(at)) {
      const int64_t rows = std::ssize(starts);
      const at::Tensor where = as_tensor(starts, pinned);
      ops::token_gather_out(batch.inputs.narrow(0, row, rows), batch.targets.narrow(0, row, rows), sources[source],
                            resident ? where.to(device, /*non_blocking=*/true) : where);
      row += rows;
    }
  }

  // (2, B, T) in host memory: inputs, then targets.
  at::Tensor build_on_host(const DataPosition& at) const {
    const auto [B, T, window] = shape(at);
    const at::Tensor pair = empty_int64({2, B, T}, pinned);
    build(at, halves(pair));
    return pair;
  }

  void start_workers() {
    const int64_t count = persistent_workers ? std::numeric_limits<int64_t>::max() : schedule.batches_left(position);
    // The workers start the copies too: batches to come arrive while a step is computed.
    prefetcher =
        std::make_unique<OrderedPrefetcher<Transfer>>(workers, ahead, count, [this, from = position](int64_t batch) {
          const DataPosition at = schedule.advanced(from, batch);
          return schedule.is_own(at) ? Transfer(build_on_host(at), device) : Transfer();
        });
  }

  void next_into(const Batch& batch) {
    // On a CPU too: gathering from memory takes microseconds, less than handing the batch over from another thread.
    if (resident || (workers == 0 && device.is_cpu())) return build(position, batch);
    if (workers > 0 && !prefetcher) start_workers();
    const Batch arrived = halves(workers > 0 ? prefetcher->next().take() : build_on_host(position));
    batch.inputs.copy_(arrived.inputs, /*non_blocking=*/true);
    batch.targets.copy_(arrived.targets, /*non_blocking=*/true);
  }

  void advance() {
    position = schedule.advanced(position, 1);
    const bool round_ended = position.sample == 0;
    if (round_ended && !persistent_workers) prefetcher.reset();
  }
};

DataLoader::DataLoader(std::vector<Tokens> sources, const DataConfig& config, const ScheduleOptions& options,
                       at::Device device) {
  const auto check = [&](size_t source, int64_t batch_size, int64_t block_size) {
    TORCH_CHECK(batch_size > 0 && block_size > 0, "DataLoader: batch_size ", batch_size, ", block_size ", block_size);
    TORCH_CHECK(sources.at(source).size() > block_size, "DataLoader: ", sources[source].size(),
                " tokens hold no sample of ", block_size, " + 1");
  };
  int64_t batches_of_stages = 0;
  for (const StageBatches& stage : options.stages) {
    for (const auto& [source, weight] : stage.mix) check(source, stage.batch_size, stage.block_size);
    batches_of_stages += stage.batches.value_or(0);
  }
  // On a CPU they are where they have to be already.
  const double free =
      device.is_cpu() ? std::numeric_limits<double>::infinity() : static_cast<double>(free_bytes(device));
  const bool resident = stays_resident(config.resident, sources, free);
  std::vector<at::Tensor> tensors;
  for (const Tokens& tokens : sources) tensors.push_back(resident ? as_tensor(tokens).to(device) : as_tensor(tokens));
  impl_.reset(new Impl{
      .device = device,
      .resident = resident,
      .pinned = config.pin_memory && device.is_cuda(),
      .persistent_workers = config.persistent_workers,
      .workers = config.num_workers.value_or(0),
      .ahead = std::max<int64_t>(1, config.num_workers.value_or(0) * config.prefetch_factor),
      .batches_of_stages = batches_of_stages,
      .schedule = SampleSchedule(sources, options),
      .sources = std::move(tensors),
      .position = {},
      .prefetcher = nullptr,
  });
}

DataLoader::DataLoader(Tokens tokens, const DataConfig& config, int64_t batch_size, int64_t block_size, uint64_t seed,
                       at::Device device)
    : DataLoader(std::vector<Tokens>{std::move(tokens)}, config,
                 ScheduleOptions{.stages = {{.batch_size = batch_size, .block_size = block_size}}, .seed = seed},
                 device) {}

DataLoader::~DataLoader() = default;

BatchShape DataLoader::next_shape() const { return impl_->shape(impl_->position); }

bool DataLoader::next_is_own() const { return impl_->schedule.is_own(impl_->position); }

void DataLoader::next_into(const Batch& batch) {
  impl_->next_into(batch);
  impl_->advance();
}

void DataLoader::skip() {
  if (impl_->prefetcher) (void)impl_->prefetcher->next();
  impl_->advance();
}

Batch DataLoader::next() {
  const auto [B, T, window] = next_shape();
  const Batch batch = halves(at::empty({2, B, T}, at::TensorOptions(impl_->device).dtype(at::kLong)));
  next_into(batch);
  return batch;
}

DataPosition DataLoader::position() const { return impl_->position; }

void DataLoader::seek(const DataPosition& position) {
  TORCH_CHECK(position.round >= 0 && position.sample >= 0 && position.sample < impl_->schedule.samples(position.round),
              "DataLoader: sample ", position.sample, " of round ", position.round, " of the data, which has ",
              impl_->schedule.samples(position.round));
  impl_->prefetcher.reset();  // what it built ahead belongs to the old position
  impl_->position = position;
}

int64_t DataLoader::tokens_ahead(int64_t batches) const {
  int64_t tokens = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const DataPosition at = impl_->schedule.advanced(impl_->position, i);
    tokens += impl_->schedule.batch_size(at) * impl_->schedule.block_size(at);
  }
  return tokens;
}

int64_t DataLoader::tokens_seen() const { return impl_->schedule.tokens_before(impl_->position); }

int64_t DataLoader::samples_per_epoch() const {
  return impl_->batches_of_stages > 0 ? impl_->batches_of_stages * impl_->schedule.batch_size({})
                                      : impl_->schedule.samples(0);
}
int64_t DataLoader::batches_per_epoch() const {
  return impl_->batches_of_stages > 0 ? impl_->batches_of_stages : impl_->schedule.batches_left({});
}
bool DataLoader::resident() const { return impl_->resident; }

int64_t DataLoader::device_bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& tokens : impl_->sources) {
    if (!tokens.is_cpu()) bytes += static_cast<int64_t>(tokens.nbytes());
  }
  return bytes;
}

SplitWindows::SplitWindows(Tokens tokens, int64_t block_size, at::Device device)
    : tokens_(std::move(tokens)), block_size_(block_size), device_(device) {
  TORCH_CHECK(block_size > 0, "SplitWindows: block_size ", block_size);
}

Tokens SplitWindows::targets_of(int64_t window) const {
  const int64_t begin = 1 + window * block_size_;
  return tokens_.slice(begin, std::min(begin + block_size_, tokens_.size()));
}

Batch SplitWindows::batch(const std::vector<int64_t>& windows) const {
  std::vector<int64_t> starts;
  for (const int64_t window : windows) {
    TORCH_CHECK(window >= 0 && window < size(), "SplitWindows: window ", window, " of ", size());
    starts.push_back(window * block_size_);
  }
  return batch(starts, block_size_);
}

Batch SplitWindows::rest_batch() const { return batch({size() * block_size_}, rest()); }

Batch SplitWindows::batch(const std::vector<int64_t>& starts, int64_t length) const {
  const at::Tensor pair = empty_int64({2, std::ssize(starts), length}, device_.is_cuda());
  ops::token_gather_out(pair.select(0, 0), pair.select(0, 1), as_tensor(tokens_), as_tensor(starts, false));
  return halves(pair.to(device_, /*non_blocking=*/true));
}

}  // namespace gpt
