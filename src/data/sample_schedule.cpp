#include "gpt/data/sample_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "gpt/core/seeds.h"
#include "gpt/data/permutation.h"
#include "sample_order.h"
#include "sample_scores.h"

namespace gpt::data {
namespace {

constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

// Takes exactly so many of every kCycle samples from each source, in an order of their own for each cycle. That makes the
// number of samples taken from a source a matter of counting within one cycle, wherever a run goes on.
class Mix {
 public:
  static constexpr int64_t kCycle = 1000;

  Mix(const std::vector<std::pair<size_t, double>>& weights, size_t sources, uint64_t seed)
      : seed_(seed), of_one_(weights.size() == 1), counts_(sources) {
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
    if (of_one_) return slots_[0];
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
  bool of_one_;
  std::array<size_t, kCycle> slots_{};
  std::vector<int64_t> counts_;  // how many samples of a cycle come from each source
};

}  // namespace

struct SampleSchedule::Impl {
  // Where the stage takes up a source: at this sample of its order, counted over all epochs.
  struct Entry {
    std::optional<SampleOrder> windows;
    std::shared_ptr<const PackedRows> rows;  // of conversations, instead
    int64_t first = 0;

    int64_t samples_per_epoch() const { return rows ? rows->size() : windows->samples_per_epoch(); }
    void add_sample(int64_t epoch, int64_t turn, Windows& to) const {
      if (rows)
        to.rows.push_back(rows->row_in_turn(epoch, turn));
      else
        to.starts.push_back(windows->start_in_turn(epoch, turn));
    }
  };
  struct Stage {
    int64_t samples, batch_size, block_size;
    Mix mix;
    std::vector<std::optional<Entry>> entries;  // by source
    std::optional<int64_t> attention_window;
    bool has_conversations;
  };

  ScheduleOptions options;
  std::vector<Stage> stages = {};

  int64_t last() const { return std::ssize(stages) - 1; }
  const Stage& stage(int64_t round) const { return stages[std::clamp<int64_t>(round, 0, last())]; }

  void add_stage(const std::vector<Tokens>& sources, const StageBatches& batches, bool is_last) {
    std::vector<std::optional<Entry>> entries(sources.size());
    bool has_conversations = false;
    for (const auto& [source, weight] : batches.mix) {
      entries[source] = entry(sources[source], source, batches.block_size);
      has_conversations = has_conversations || sources[source].has_marks();
    }
    int64_t samples = is_last ? kEndless : *batches.batches * batches.batch_size;
    if (!batches.batches) samples = entries[batches.mix[0].first]->samples_per_epoch();
    const uint64_t mix_seed = mix64(options.seed + ~static_cast<uint64_t>(stages.size()));
    stages.push_back({samples, batches.batch_size, batches.block_size, Mix(batches.mix, sources.size(), mix_seed),
                      std::move(entries), batches.attention_window, has_conversations});
  }

  // How a new stage takes up a source: as the last stage that used it left it, if the sequences are as long.
  Entry entry(const Tokens& tokens, size_t source, int64_t block_size) const {
    for (auto before = stages.rbegin(); before != stages.rend(); ++before) {
      if (!before->entries[source]) continue;
      Entry next = *before->entries[source];
      next.first += before->mix.taken(before->samples)[source];
      if (before->block_size == block_size) return next;
      const int64_t epochs = (next.first + next.samples_per_epoch() - 1) / next.samples_per_epoch();
      Entry anew = first_entry(tokens, source, block_size);
      anew.first = epochs * anew.samples_per_epoch();
      return anew;
    }
    Entry first = first_entry(tokens, source, block_size);
    if (options.order == DataOrder::random || first.rows) return first;
    first.windows->set_first_epoch(
        [tokens, order = *first.windows, by = options.order, end_of_text = options.end_of_text] {
          return easiest_first(tokens, order, by, end_of_text);
        });
    return first;
  }

  Entry first_entry(const Tokens& tokens, size_t source, int64_t block_size) const {
    const uint64_t seed = options.seed + source;
    if (!tokens.has_marks()) return {SampleOrder(tokens.size(), block_size, seed), nullptr};
    return {std::nullopt, std::make_shared<const PackedRows>(tokens, block_size, options.packing, seed)};
  }
};

SampleSchedule::SampleSchedule(const std::vector<Tokens>& sources, const ScheduleOptions& options) {
  require_documents(options.order, options.end_of_text);
  auto impl = std::make_unique<Impl>(Impl{options});
  for (const StageBatches& stage : options.stages) impl->add_stage(sources, stage, &stage == &options.stages.back());
  impl_ = std::move(impl);
}

SampleSchedule::~SampleSchedule() = default;

int64_t SampleSchedule::samples(int64_t round) const { return impl_->stage(round).samples; }

int64_t SampleSchedule::block_size(const DataPosition& at) const { return impl_->stage(at.round).block_size; }

int64_t SampleSchedule::batch_size(const DataPosition& at) const {
  const Impl::Stage& stage = impl_->stage(at.round);
  return std::min(stage.batch_size, stage.samples - at.sample);
}

const PackedRows* SampleSchedule::packed_rows(size_t source) const {
  const auto& entry = impl_->stage(0).entries.at(source);
  return entry ? entry->rows.get() : nullptr;
}

std::optional<int64_t> SampleSchedule::attention_window(const DataPosition& at) const {
  return impl_->stage(at.round).attention_window;
}

bool SampleSchedule::has_segments(const DataPosition& at) const {
  return impl_->options.packing && impl_->stage(at.round).has_conversations;
}

// A round begins with an update: an epoch does, and a stage has whole ones.
bool SampleSchedule::is_own(const DataPosition& at) const {
  const auto [rank, processes, batches] = impl_->options.dealing;
  const int64_t number = at.sample / impl_->stage(at.round).batch_size % batches;
  return number % processes == rank;
}

int64_t SampleSchedule::batches_left(const DataPosition& from) const {
  const int64_t left = samples(from.round) - from.sample, batch = impl_->stage(from.round).batch_size;
  return left / batch + (left % batch > 0);
}

DataPosition SampleSchedule::advanced(const DataPosition& from, int64_t batches) const {
  DataPosition at = from;
  for (int64_t left = batches_left(at); batches >= left; left = batches_left(at)) {
    // From the last stage on all rounds are alike: however far, no loop.
    const int64_t rounds = at.round >= impl_->last() && at.sample == 0 ? batches / left : 1;
    at = {at.round + rounds, 0};
    batches -= rounds * left;
  }
  return {at.round, at.sample + batches * impl_->stage(at.round).batch_size};
}

int64_t SampleSchedule::tokens_before(const DataPosition& at) const {
  const auto in = [this](int64_t round, int64_t samples) { return samples * impl_->stage(round).block_size; };
  int64_t tokens = in(at.round, at.sample);
  for (int64_t round = 0; round < std::min(at.round, impl_->last()); ++round) tokens += in(round, samples(round));
  const int64_t later = std::max<int64_t>(0, at.round - impl_->last());  // rounds that are all alike
  return later == 0 ? tokens : tokens + later * in(at.round, samples(at.round));
}

int64_t SampleSchedule::learned(const DataPosition& at) const {
  if (!impl_->stage(at.round).has_conversations) return batch_size(at) * block_size(at);
  int64_t learned = 0;
  for (const Windows& of_source : windows(at)) {
    learned += std::ssize(of_source.starts) * block_size(at);
    for (const SegmentRow& row : of_source.rows) learned += learned_in(row);
  }
  return learned;
}

std::vector<Windows> SampleSchedule::windows(const DataPosition& at) const {
  const int64_t begin = at.sample, end = begin + batch_size(at);
  const Impl::Stage& stage = impl_->stage(at.round);
  const int64_t earlier_epochs = std::max<int64_t>(0, at.round - impl_->last());
  std::vector<int64_t> taken = stage.mix.taken(begin);
  std::vector<Windows> result;
  for (size_t source = 0; source < taken.size(); ++source) result.push_back({source});
  for (int64_t sample = begin; sample < end; ++sample) {
    const size_t source = stage.mix.source_of(sample);
    const Impl::Entry& entry = *stage.entries[source];
    const int64_t index = entry.first + taken[source]++, in_epoch = entry.samples_per_epoch();
    entry.add_sample(earlier_epochs + index / in_epoch, index % in_epoch, result[source]);
  }
  std::erase_if(result, [](const Windows& windows) { return windows.count() == 0; });
  return result;
}

}  // namespace gpt::data
