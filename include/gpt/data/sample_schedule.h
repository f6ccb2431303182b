// Which windows of which files a batch takes: the arithmetic of the data loader, without tensors.
//
// Without stages, one file epoch after epoch: each sample of an epoch exactly once in a keyed random order. Sample i is
// tokens [iT + r, (i+1)T + r] with an offset r drawn anew for each epoch; the last, smaller batch of an epoch is kept.
//
// With stages, samples are drawn from the files of the stage in the proportion of their weights: of every 1,000 samples
// exactly so many from each, in a keyed random order. Each file still gives each of its samples once before any of them
// again. It goes on where the stage before left it, unless the length of the sequences has changed: then it begins anew.
//
// Everything follows from the position, which is two integers, so that any thread can build any batch and a resumed run
// goes on with exactly the batches that were left.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/data/stages.h"
#include "gpt/data/token_file.h"

namespace gpt {

struct DataPosition {
  int64_t epoch = 0;   // of a run in stages: the stage
  int64_t sample = 0;  // samples of it already taken, by all ranks together
  bool operator==(const DataPosition&) const = default;
};

// This process among those that share the samples: each batch is dealt out, and no sample goes to two of them.
struct RankSlice {
  int64_t rank = 0, world_size = 1;
};

struct ScheduleOptions {
  int64_t batch_size = 0;  // sequences per rank and micro-step
  int64_t block_size = 0;
  uint64_t seed = 0;
  RankSlice slice = {};
  DataOrder order = DataOrder::random;
  std::optional<int32_t> end_of_text = {};  // ends a document, for DataOrder::shorter_first
  std::vector<StageBatches> stages = {};    // empty: the first source, epoch after epoch
};

// Samples of one file: the first tokens of windows of block_size + 1.
struct Windows {
  size_t source;
  std::vector<int64_t> starts;
};

class SampleSchedule {
 public:
  // Every source that is used must have more tokens than the sequences taken from it.
  SampleSchedule(const std::vector<Tokens>& sources, const ScheduleOptions& options);
  ~SampleSchedule();
  SampleSchedule(SampleSchedule&&) noexcept;

  int64_t samples(int64_t epoch) const;     // of all ranks
  int64_t block_size(int64_t epoch) const;
  int64_t batch_size(const DataPosition& at) const;  // of this rank
  int64_t batches_left(const DataPosition& from) const;  // in its epoch or stage
  DataPosition advanced(const DataPosition& from, int64_t batches) const;
  std::vector<Windows> windows(const DataPosition& at) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace gpt
