#include "gpt/batches/data_loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "gpt/core/ordered_prefetcher.h"
#include "gpt/device/device.h"
#include "gpt/ops/document_starts.h"
#include "gpt/ops/token_gather.h"
#include "transfer.h"

namespace gpt::batches {
namespace {

// The tokens as a tensor over the memory they lie in, which lives as long as the tensor.
at::Tensor as_tensor(const data::Tokens& tokens) {
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

// Inputs, targets and, if there are three, starts of (2 or 3, B, T) in one piece, so that a batch travels as one.
Batch parts_of(const at::Tensor& together) {
  return {together.select(0, 0), together.select(0, 1), together.size(0) > 2 ? together.select(0, 2) : at::Tensor()};
}

Batch rows_of(const Batch& batch, int64_t first, int64_t count) {
  return {batch.inputs.narrow(0, first, count), batch.targets.narrow(0, first, count),
          batch.starts.defined() ? batch.starts.narrow(0, first, count) : at::Tensor()};
}

void copy_into(const Batch& to, const Batch& from) {
  to.inputs.copy_(from.inputs, /*non_blocking=*/true);
  to.targets.copy_(from.targets, /*non_blocking=*/true);
  if (to.starts.defined()) to.starts.copy_(from.starts, /*non_blocking=*/true);
}

// (2 or 3, rows, T) of conversations in host memory.
at::Tensor written(const data::Tokens& tokens, const std::vector<data::SegmentRow>& rows, int64_t T, bool has_starts,
                   bool pinned) {
  const at::Tensor together = empty_int64({has_starts ? 3 : 2, std::ssize(rows), T}, pinned);
  const Batch parts = parts_of(together);
  data::write_rows(tokens, rows, T,
                   {.inputs = parts.inputs.mutable_data_ptr<int64_t>(),
                    .targets = parts.targets.mutable_data_ptr<int64_t>(),
                    .starts = has_starts ? parts.starts.mutable_data_ptr<int64_t>() : nullptr});
  return together;
}

}  // namespace

Batch empty_batch(const BatchShape& shape, at::Device device) {
  const std::array sizes{shape.sequences, shape.length};
  const auto of = [&](at::ScalarType type) { return at::empty(sizes, at::TensorOptions(device).dtype(type)); };
  return {of(at::kLong), of(at::kLong), shape.has_starts ? of(at::kInt) : at::Tensor()};
}

bool stays_resident(Resident setting, const std::vector<data::Tokens>& sources, double free_bytes) {
  constexpr double kShare = 1.0 / 8;
  if (setting != Resident::automatic) return setting == Resident::on;
  int64_t bytes = 0;
  for (const data::Tokens& tokens : sources) bytes += tokens.bytes();
  return static_cast<double>(bytes) <= kShare * free_bytes;
}

struct DataLoader::Impl {
  const at::Device device;
  const bool resident, pinned, persistent_workers;
  const int64_t workers, ahead;
  const int64_t batches_of_stages;  // batches of the whole run; 0 where it goes epoch after epoch
  const data::SampleSchedule schedule;
  const std::optional<int32_t> separator;  // of documents in text
  const std::vector<data::Tokens> tokens;  // of each source
  std::vector<at::Tensor>
      sources;  // (N) each, on the device when resident, else in host memory; conversations always there
  data::DataPosition position;
  double seconds_waited = 0;
  std::unique_ptr<OrderedPrefetcher<Transfer>> prefetcher;  // last: its threads use what is above

  BatchShape shape(const data::DataPosition& at) const {
    return {schedule.batch_size(at), schedule.block_size(at), schedule.attention_window(at), schedule.has_segments(at)};
  }

  // Fills a batch that lies where the sources of text do.
  void build(const data::DataPosition& at, const Batch& batch) const {
    int64_t row = 0;
    for (const data::Windows& windows : schedule.windows(at)) {
      const Batch part = rows_of(batch, row, windows.count());
      const auto& [source, starts, rows] = windows;
      if (rows.empty())
        gather(source, starts, part);
      else
        copy_into(part, parts_of(written(tokens[source], rows, part.inputs.size(1), part.starts.defined(), pinned)));
      row += windows.count();
    }
  }

  void gather(size_t source, const std::vector<int64_t>& starts, const Batch& part) const {
    const at::Tensor where = as_tensor(starts, pinned);
    ops::token_gather_out(part.inputs, part.targets, sources[source],
                          resident ? where.to(device, /*non_blocking=*/true) : where);
    if (!part.starts.defined()) return;
    if (separator)
      part.starts.copy_(ops::document_starts(part.inputs, *separator));
    else
      part.starts.zero_();
  }

  // (2 or 3, B, T) in host memory.
  at::Tensor build_on_host(const data::DataPosition& at) const {
    const BatchShape of = shape(at);
    const at::Tensor together = empty_int64({of.has_starts ? 3 : 2, of.sequences, of.length}, pinned);
    build(at, parts_of(together));
    return together;
  }

  void start_workers() {
    const int64_t count = persistent_workers ? std::numeric_limits<int64_t>::max() : schedule.batches_left(position);
    // The workers start the copies too: batches to come arrive while a step is computed.
    prefetcher =
        std::make_unique<OrderedPrefetcher<Transfer>>(workers, ahead, count, [this, from = position](int64_t batch) {
          const data::DataPosition at = schedule.advanced(from, batch);
          return schedule.is_own(at) ? Transfer(build_on_host(at), device) : Transfer();
        });
  }

  void next_into(const Batch& batch) {
    // On a CPU too: gathering from memory takes microseconds, less than handing the batch over from another thread.
    if (workers == 0 && device.is_cpu()) return waiting([&] { build(position, batch); });
    if (resident) return build(position, batch);  // on the device
    if (workers > 0 && !prefetcher) start_workers();
    at::Tensor together;
    waiting([&] { together = workers > 0 ? prefetcher->next().take() : build_on_host(position); });
    copy_into(batch, parts_of(together));
  }

  template <class Action>
  void waiting(const Action& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    seconds_waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  void advance() {
    position = schedule.advanced(position, 1);
    const bool round_ended = position.sample == 0;
    if (round_ended && !persistent_workers) prefetcher.reset();
  }
};

DataLoader::DataLoader(std::vector<data::Tokens> sources, const DataConfig& config,
                       const data::ScheduleOptions& options, at::Device device) {
  const auto check = [&](size_t source, int64_t batch_size, int64_t block_size) {
    TORCH_CHECK(batch_size > 0 && block_size > 0, "DataLoader: batch_size ", batch_size, ", block_size ", block_size);
    TORCH_CHECK(sources.at(source).size() > block_size || sources[source].has_marks(),
                "DataLoader: ", sources[source].size(), " tokens hold no sample of ", block_size, " + 1");
  };
  int64_t batches_of_stages = 0;
  for (const data::StageBatches& stage : options.stages) {
    for (const auto& [source, weight] : stage.mix) check(source, stage.batch_size, stage.block_size);
    batches_of_stages += stage.batches.value_or(0);
  }
  // On a CPU they are where they have to be already.
  const double free =
      device.is_cpu() ? std::numeric_limits<double>::infinity() : static_cast<double>(device::free_bytes(device));
  const bool resident = stays_resident(config.resident, sources, free);
  std::vector<at::Tensor> tensors;
  for (const data::Tokens& tokens : sources)
    tensors.push_back(resident && !tokens.has_marks() ? as_tensor(tokens).to(device) : as_tensor(tokens));
  impl_.reset(new Impl{
      .device = device,
      .resident = resident,
      .pinned = config.pin_memory && device.is_cuda(),
      .persistent_workers = config.persistent_workers,
      .workers = config.num_workers.value_or(0),
      .ahead = std::max<int64_t>(1, config.num_workers.value_or(0) * config.prefetch_factor),
      .batches_of_stages = batches_of_stages,
      .schedule = data::SampleSchedule(sources, options),
      .separator = options.document_separator,
      .tokens = std::move(sources),
      .sources = std::move(tensors),
      .position = {},
      .seconds_waited = 0,
      .prefetcher = nullptr,
  });
}

DataLoader::DataLoader(data::Tokens tokens, const DataConfig& config, int64_t batch_size, int64_t block_size,
                       uint64_t seed, at::Device device)
    : DataLoader(std::vector<data::Tokens>{std::move(tokens)}, config,
                 data::ScheduleOptions{.stages = {{.batch_size = batch_size, .block_size = block_size}},
                                       .seed = seed,
                                       .packing = config.packing},
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
  const Batch batch = empty_batch(next_shape(), impl_->device);
  next_into(batch);
  return batch;
}

data::DataPosition DataLoader::position() const { return impl_->position; }

void DataLoader::seek(const data::DataPosition& position) {
  TORCH_CHECK(position.round >= 0 && position.sample >= 0 && position.sample < impl_->schedule.samples(position.round),
              "DataLoader: sample ", position.sample, " of round ", position.round, " of the data, which has ",
              impl_->schedule.samples(position.round));
  impl_->prefetcher.reset();  // what it built ahead belongs to the old position
  impl_->position = position;
}

int64_t DataLoader::tokens_ahead(int64_t batches) const {
  int64_t tokens = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const data::DataPosition at = impl_->schedule.advanced(impl_->position, i);
    tokens += impl_->schedule.batch_size(at) * impl_->schedule.block_size(at);
  }
  return tokens;
}

int64_t DataLoader::learned_ahead(int64_t batches) const {
  int64_t learned = 0;
  for (int64_t i = 0; i < batches; ++i)
    learned += impl_->schedule.learned(impl_->schedule.advanced(impl_->position, i));
  return learned;
}

int64_t DataLoader::tokens_seen() const { return impl_->schedule.tokens_before(impl_->position); }

int64_t DataLoader::samples_per_epoch() const {
  return impl_->batches_of_stages > 0 ? impl_->batches_of_stages * impl_->schedule.batch_size({})
                                      : impl_->schedule.samples(0);
}
int64_t DataLoader::batches_per_epoch() const {
  return impl_->batches_of_stages > 0 ? impl_->batches_of_stages : impl_->schedule.batches_left({});
}
const data::PackedRows* DataLoader::packed_rows() const { return impl_->schedule.packed_rows(0); }
bool DataLoader::resident() const { return impl_->resident; }
double DataLoader::seconds_waited() const { return impl_->seconds_waited; }

int64_t DataLoader::device_bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& tokens : impl_->sources) {
    if (!tokens.is_cpu()) bytes += static_cast<int64_t>(tokens.nbytes());
  }
  return bytes;
}

SplitWindows::SplitWindows(data::Tokens tokens, int64_t block_size, at::Device device, bool packs)
    : tokens_(std::move(tokens)), packs_(packs), block_size_(block_size), device_(device) {
  TORCH_CHECK(block_size > 0, "SplitWindows: block_size ", block_size);
  if (tokens_.has_marks()) rows_ = std::make_shared<const data::PackedRows>(tokens_, block_size, packs, /*seed=*/0);
}

data::Tokens SplitWindows::targets_of(int64_t window) const {
  if (rows_) return window < size() ? data::learned_ids(tokens_, rows_->row(window)) : data::Tokens();
  const int64_t begin = 1 + window * block_size_;
  return tokens_.slice(begin, std::min(begin + block_size_, tokens_.size()));
}

Batch SplitWindows::batch(const std::vector<int64_t>& windows) const {
  std::vector<int64_t> starts;
  for (const int64_t window : windows) {
    TORCH_CHECK(window >= 0 && window < size(), "SplitWindows: window ", window, " of ", size());
    starts.push_back(window * block_size_);
  }
  return rows_ ? batch_of_rows(windows) : batch(starts, block_size_);
}

Batch SplitWindows::batch_of_rows(const std::vector<int64_t>& rows) const {
  std::vector<data::SegmentRow> segments;
  for (const int64_t row : rows) segments.push_back(rows_->row(row));
  const Batch arriving = parts_of(written(tokens_, segments, block_size_, packs_, device_.is_cuda()));
  const Batch batch = empty_batch({std::ssize(rows), block_size_, {}, packs_}, device_);
  copy_into(batch, arriving);
  return batch;
}

Batch SplitWindows::rest_batch() const { return batch({size() * block_size_}, rest()); }

Batch SplitWindows::batch(const std::vector<int64_t>& starts, int64_t length) const {
  const at::Tensor pair = empty_int64({2, std::ssize(starts), length}, device_.is_cuda());
  ops::token_gather_out(pair.select(0, 0), pair.select(0, 1), as_tensor(tokens_), as_tensor(starts, false));
  return parts_of(pair.to(device_, /*non_blocking=*/true));
}

}  // namespace gpt::batches
