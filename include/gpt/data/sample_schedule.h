// Which windows of which files a batch takes: the arithmetic of the data loader, without tensors.
//
// A file gives each of its samples exactly once in an epoch, in a keyed random order, and then again in another. Sample i is
// tokens [iT + r, (i+1)T + r] with an offset r drawn anew for each epoch.
//
// A sample of a file of conversations is a row of them (packed_rows.h), each exactly once in an epoch too.
//
// A stage draws samples from its files in the proportion of their weights: of every 1,000 samples exactly so many from each,
// in a keyed random order. A file goes on where the stage before left it, unless the length of the sequences has changed:
// then it begins with its next epoch. The last stage goes on without end. A stage that has no number of batches is taken
// again for each epoch of its one file, and keeps the last, smaller batch of each.
//
// Everything follows from the position, which is two integers, so that any thread can build any batch and a resumed run
// goes on with exactly the batches that were left.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/data/packed_rows.h"
#include "gpt/data/stages.h"
#include "gpt/data/token_file.h"

namespace gpt::data {

struct DataPosition {
  int64_t round = 0;   // the stages in turn; in a stage that is taken again and again, the epoch
  int64_t sample = 0;  // samples of it already taken, by all processes together
  bool operator==(const DataPosition&) const = default;
};

// Which batches this process computes: those of an update are dealt out whole, number m to process m mod `processes`.
struct Dealing {
  int64_t rank = 0, processes = 1;
  int64_t batches_of_update = 1;
};

struct ScheduleOptions {
  std::vector<StageBatches> stages;  // one or more
  uint64_t seed = 0;
  Dealing dealing = {};
  DataOrder order = DataOrder::random;
  std::optional<int32_t> end_of_text = {};  // ends a document, for DataOrder::shorter_first
  bool packing = true;                      // conversations share rows
  // The token that begins a document, where attention stays within documents: of text in batches that have conversations too.
  std::optional<int32_t> document_separator = {};
};

// Samples of one file: the first tokens of windows of block_size + 1, or rows of conversations.
struct Windows {
  size_t source;
  std::vector<int64_t> starts = {};
  std::vector<SegmentRow> rows = {};
  int64_t count() const { return std::ssize(starts) + std::ssize(rows); }
};

class SampleSchedule {
 public:
  // Every source that is used must have more tokens than the sequences taken from it. None is read before windows() is called,
  // whatever the order, but for the marks of conversations. Throws gpt::Error(data) for some of which nothing is learned.
  SampleSchedule(const std::vector<Tokens>& sources, const ScheduleOptions& options);
  ~SampleSchedule();

  int64_t samples(int64_t round) const;
  int64_t block_size(const DataPosition& at) const;
  int64_t batch_size(const DataPosition& at) const;
  std::optional<int64_t> attention_window(const DataPosition& at) const;
  bool has_segments(const DataPosition& at) const;       // rows of that batch may hold several conversations
  bool is_own(const DataPosition& at) const;             // this process computes that batch
  int64_t batches_left(const DataPosition& from) const;  // in its round
  DataPosition advanced(const DataPosition& from, int64_t batches) const;
  int64_t tokens_before(const DataPosition& at) const;  // positions, from the beginning of the run
  int64_t learned(const DataPosition& at) const;        // targets of that batch that count
  std::vector<Windows> windows(const DataPosition& at) const;
  const PackedRows* packed_rows(size_t source) const;  // at the beginning; null where the source is no conversations

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace gpt::data
