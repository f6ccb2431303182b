#include "gpt/data/sample_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "gpt/data/permutation.h"
#include "sample_order.h"
#include "sample_scores.h"

namespace gpt {
namespace {

constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

// Of every kCycle samples, exactly so many from each source, in an order of their own for each cycle. That makes the
// number of samples taken from a source a matter of counting within one cycle, wherever a run goes on.
class Mix {
 public:
  static constexpr int64_t kCycle = 1000;

  Mix(const std::vector<std::pair<size_t, double>>& weights, size_t sources, uint64_t seed) : seed_(seed), counts_(sources) {
    double total = 0, before = 0;
    for (const auto& [source, weight] : weights) total += weight;
    // Rounding the running sum leaves no slot over.
    for (const auto& [source, weight] : weights) {
      const auto first = std::llround(before / total * kCycle), last = std::llround((before + weight) / total * kCycle);
      std::fill(slots_.begin() + first, slots_.begin() + last, source);
      counts_[source] += last - first;
      before += weight;
    }
  }

  size_t source_of(int64_t sample) const {
    const Permutation order(kCycle, mix64(seed_ + static_cast<uint64_t>(sample / kCycle)));
    return slots_[order(static_cast<uint64_t>(sample % kCycle))];
  }

  // How many of the first `samples` samples come from each source.
  std::vector<int64_t> taken(int64_t samples) const {
    std::vector<int64_t> result = counts_;
    for (int64_t& count : result) count *= samples / kCycle;
    for (int64_t sample = samples / kCycle * kCycle; sample < samples; ++sample) ++result[source_of(sample)];
    return result;
  }

 private:
  uint64_t seed_;
  std::array<size_t, kCycle> slots_{};
  std::vector<int64_t> counts_;  // of each source in a cycle
};

}  // namespace

struct SampleSchedule::Impl {
  // Where the stage takes up a source: at this sample of its order, counted over all epochs.
  struct Entry {
    SampleOrder order;
    int64_t first;
  };
  struct Stage {
    int64_t samples, batch_size, block_size;
    Mix mix;
    std::vector<std::optional<Entry>> entries;  // by source
  };

  ScheduleOptions options;
  std::optional<SampleOrder> order;  // without stages
  std::vector<Stage> stages;

  const Stage* stage(int64_t epoch) const { return stages.empty() ? nullptr : &stages[std::min<size_t>(epoch, stages.size() - 1)]; }

  int64_t samples(int64_t epoch) const { return stages.empty() ? order->samples_per_epoch() : stage(epoch)->samples; }

  int64_t batch_of_all(int64_t epoch) const {
    return (stages.empty() ? options.batch_size : stage(epoch)->batch_size) * options.slice.world_size;
  }

  // This rank's part of the batch at a position.
  std::pair<int64_t, int64_t> share(const DataPosition& at) const {
    const int64_t size = std::min(batch_of_all(at.epoch), samples(at.epoch) - at.sample);
    const auto [rank, world] = options.slice;
    return {at.sample + size * rank / world, at.sample + size * (rank + 1) / world};
  }

  SampleOrder arranged(const Tokens& tokens, SampleOrder made) const {
    if (options.order != DataOrder::random) made.set_first_epoch(easiest_first(tokens, made, options.order, options.end_of_text));
    return made;
  }

  void add_stage(const std::vector<Tokens>& sources, const StageBatches& batches, bool last) {
    const uint64_t mix_seed = mix64(options.seed + ~static_cast<uint64_t>(stages.size()));
    const int64_t batch = batches.batch_size * options.slice.world_size;
    Stage next{last ? kEndless : batches.batches * batch, batches.batch_size, batches.block_size,
               Mix(batches.mix, sources.size(), mix_seed), std::vector<std::optional<Entry>>(sources.size())};
    for (const auto& [source, weight] : batches.mix) next.entries[source] = entry(sources[source], source, batches.block_size);
    stages.push_back(std::move(next));
  }

  // How a new stage takes up a source: as the last stage that used it left it, if the sequences are as long.
  Entry entry(const Tokens& tokens, size_t source, int64_t block_size) const {
    for (auto before = stages.rbegin(); before != stages.rend(); ++before) {
      if (!before->entries[source]) continue;
      const auto& [old, first] = *before->entries[source];
      const int64_t next = first + before->mix.taken(before->samples)[source];
      if (before->block_size == block_size) return {old, next};
      const SampleOrder anew(tokens.size(), block_size, options.seed + source);
      const int64_t epochs = (next + old.samples_per_epoch() - 1) / old.samples_per_epoch();
      return {anew, epochs * anew.samples_per_epoch()};
    }
    return {arranged(tokens, SampleOrder(tokens.size(), block_size, options.seed + source)), 0};
  }
};

SampleSchedule::SampleSchedule(const std::vector<Tokens>& sources, const ScheduleOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (options.stages.empty()) {
    impl->order = impl->arranged(sources.at(0), SampleOrder(sources.at(0).size(), options.block_size, options.seed));
  }
  for (const StageBatches& stage : options.stages) impl->add_stage(sources, stage, &stage == &options.stages.back());
  impl_ = std::move(impl);
}

SampleSchedule::~SampleSchedule() = default;
SampleSchedule::SampleSchedule(SampleSchedule&&) noexcept = default;

int64_t SampleSchedule::samples(int64_t epoch) const { return impl_->samples(epoch); }

int64_t SampleSchedule::block_size(int64_t epoch) const {
  return impl_->stages.empty() ? impl_->options.block_size : impl_->stage(epoch)->block_size;
}

int64_t SampleSchedule::batch_size(const DataPosition& at) const {
  const auto [begin, end] = impl_->share(at);
  return end - begin;
}

int64_t SampleSchedule::batches_left(const DataPosition& from) const {
  const int64_t left = samples(from.epoch) - from.sample, batch = impl_->batch_of_all(from.epoch);
  return left / batch + (left % batch > 0);
}

DataPosition SampleSchedule::advanced(const DataPosition& from, int64_t batches) const {
  DataPosition at = from;
  if (impl_->stages.empty()) {  // all epochs are alike: however far, no loop
    const int64_t left = batches_left(at), per_epoch = batches_left({});
    if (batches < left) return {at.epoch, at.sample + batches * impl_->batch_of_all(0)};
    return {at.epoch + 1 + (batches - left) / per_epoch, (batches - left) % per_epoch * impl_->batch_of_all(0)};
  }
  for (int64_t left = batches_left(at); batches >= left; left = batches_left(at)) {
    at = {at.epoch + 1, 0};
    batches -= left;
  }
  return {at.epoch, at.sample + batches * impl_->batch_of_all(at.epoch)};
}

std::vector<Windows> SampleSchedule::windows(const DataPosition& at) const {
  const auto [begin, end] = impl_->share(at);
  if (impl_->stages.empty()) {
    std::vector<int64_t> starts(static_cast<size_t>(end - begin));
    impl_->order->starts(at.epoch, begin, end - begin, starts.data());
    return {{0, std::move(starts)}};
  }
  const Impl::Stage& stage = *impl_->stage(at.epoch);
  std::vector<int64_t> taken = stage.mix.taken(begin);
  std::vector<Windows> result;
  for (size_t source = 0; source < taken.size(); ++source) result.push_back({source, {}});
  for (int64_t sample = begin; sample < end; ++sample) {
    const size_t source = stage.mix.source_of(sample);
    const auto& [order, first] = *stage.entries[source];
    const int64_t index = first + taken[source]++;
    int64_t start = 0;
    order.starts(index / order.samples_per_epoch(), index % order.samples_per_epoch(), 1, &start);
    result[source].starts.push_back(start);
  }
  std::erase_if(result, [](const Windows& windows) { return windows.starts.empty(); });
  return result;
}

}  // namespace gpt
