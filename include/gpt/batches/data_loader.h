// Batches of what sample_schedule.h says, on the device. The position is two integers, so a resumed run continues with
// exactly the batches that were left.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/data/sample_schedule.h"
#include "gpt/data/token_file.h"

namespace gpt::batches {

struct BatchShape {
  int64_t sequences = 0, length = 0;
  std::optional<int64_t> attention_window = {};  // of windowed layers; none: the model's
  bool has_starts = false;                       // rows may hold several conversations
};

struct Batch {
  at::Tensor inputs;  // (B, T) int64 on the device
  // (B, T) int64: inputs shifted by one; of conversations ops::kMaskedTarget where nothing is learned.
  at::Tensor targets;
  // (B, T) int32: where the document of each position begins, as ops::document_starts() has it. Undefined: rows are not made of several.
  at::Tensor starts = {};
};

// For a batch of that shape on the device, not initialized.
Batch empty_batch(const BatchShape& shape, at::Device device);

// Whether tokens stay on a GPU with so much free memory: `setting`, or (auto) where they take at most an eighth of it.
bool stays_resident(Resident setting, const std::vector<data::Tokens>& sources, double free_bytes);

class DataLoader {
 public:
  // Tokens stay resident on the device when config.resident says so or (auto) when they fit; batches are then gathered
  // there. Otherwise config.num_workers threads build them ahead into pinned memory.
  DataLoader(std::vector<data::Tokens> sources, const DataConfig& config, const data::ScheduleOptions& schedule,
             at::Device device);
  // Epoch after epoch of one source.
  DataLoader(data::Tokens tokens, const DataConfig& config, int64_t batch_size, int64_t block_size, uint64_t seed,
             at::Device device);
  ~DataLoader();

  BatchShape next_shape() const;
  bool next_is_own() const;             // this process computes the next batch (Dealing)
  void next_into(const Batch& batch);   // its tensors have that shape and lie on the device
  void skip();                          // the next batch is another process's
  Batch next();                         // in memory of its own
  data::DataPosition position() const;  // the position of the batch that comes next
  void seek(const data::DataPosition& position);
  int64_t tokens_ahead(int64_t batches) const;  // positions in the next `batches` batches
  // Targets among them that count: of text all, of conversations one or more a row.
  int64_t learned_ahead(int64_t batches) const;
  int64_t tokens_seen() const;  // positions from the beginning of the run up to position()

  int64_t samples_per_epoch() const;  // samples; those of the whole run where it is in stages
  int64_t batches_per_epoch() const;
  const data::PackedRows* packed_rows() const;  // of conversations of the main text; null for other data
  bool resident() const;
  int64_t device_bytes() const;   // bytes that the tokens take in a GPU's memory
  double seconds_waited() const;  // so far, for batches that were built or read in the meantime

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The sequences of a split, for validation: window w is tokens [wT, (w+1)T], and what is left behind the last is a shorter one. Of
// conversations they are packed rows, always the same ones, and nothing is left.
class SplitWindows {
 public:
  // `packs`: conversations share rows. Throws gpt::Error(data) for some of which nothing is learned.
  SplitWindows(data::Tokens tokens, int64_t block_size, at::Device device, bool packs = true);
  int64_t size() const { return rows_ ? rows_->size() : targets() / block_size_; }  // how many whole windows
  int64_t rest() const { return rows_ ? 0 : targets() % block_size_; }  // how many tokens the shorter one predicts
  // Targets that count: of all windows and the shorter one, or of one window.
  int64_t targets() const { return rows_ ? rows_->learned() : std::max<int64_t>(0, tokens_.size() - 1); }
  int64_t targets_in(int64_t window) const { return rows_ ? data::learned_in(rows_->row(window)) : block_size_; }

  Batch batch(const std::vector<int64_t>& windows) const;  // (B, T), in this order
  Batch rest_batch() const;                                // (1, rest())
  data::Tokens targets_of(int64_t window) const;           // those that count; of size(): the shorter one's

 private:
  Batch batch(const std::vector<int64_t>& starts, int64_t length) const;
  Batch batch_of_rows(const std::vector<int64_t>& rows) const;

  data::Tokens tokens_;
  std::shared_ptr<const data::PackedRows> rows_;  // of conversations
  bool packs_;
  int64_t block_size_;
  at::Device device_;
};

}  // namespace gpt::batches
