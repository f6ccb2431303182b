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

namespace gpt {

struct BatchShape {
  int64_t sequences = 0, length = 0;
  std::optional<int64_t> attention_window = {};  // of windowed layers; none: the model's
};

struct Batch {
  at::Tensor inputs;   // (B, T) int64 on the device
  at::Tensor targets;  // (B, T) int64: inputs shifted by one
};

// Whether tokens stay on a GPU with so much free memory: `setting`, or (auto) where they take at most an eighth of it.
bool stays_resident(Resident setting, const std::vector<Tokens>& sources, double free_bytes);

class DataLoader {
 public:
  // Tokens stay resident on the device when config.resident says so or (auto) when they fit; batches are then gathered
  // there. Otherwise config.num_workers threads build them ahead into pinned memory.
  DataLoader(std::vector<Tokens> sources, const DataConfig& config, const ScheduleOptions& schedule, at::Device device);
  // Epoch after epoch of one source.
  DataLoader(Tokens tokens, const DataConfig& config, int64_t batch_size, int64_t block_size, uint64_t seed,
             at::Device device);
  ~DataLoader();

  BatchShape next_shape() const;
  bool next_is_own() const;            // this process computes the next batch (Dealing)
  void next_into(const Batch& batch);  // its tensors have that shape and lie on the device
  void skip();                         // the next batch is another process's
  Batch next();                        // in memory of its own
  DataPosition position() const;       // the position of the batch that comes next
  void seek(const DataPosition& position);
  int64_t tokens_ahead(int64_t batches) const;  // targets in the next `batches` batches
  int64_t tokens_seen() const;                  // targets from the beginning of the run up to position()

  int64_t samples_per_epoch() const;  // samples; those of the whole run where it is in stages
  int64_t batches_per_epoch() const;
  bool resident() const;
  int64_t device_bytes() const;  // bytes that the tokens take in a GPU's memory

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The sequences of a split, for validation: window w is tokens [wT, (w+1)T], and what is left behind the last is a shorter one.
class SplitWindows {
 public:
  SplitWindows(Tokens tokens, int64_t block_size, at::Device device);
  int64_t size() const { return targets() / block_size_; }  // how many whole windows
  int64_t rest() const { return targets() % block_size_; }  // how many tokens the shorter one predicts
  int64_t targets() const { return std::max<int64_t>(0, tokens_.size() - 1); }

  Batch batch(const std::vector<int64_t>& windows) const;  // (B, T), in this order
  Batch rest_batch() const;                                // (1, rest())
  Tokens targets_of(int64_t window) const;                 // those that it predicts; of size(): the shorter one's

 private:
  Batch batch(const std::vector<int64_t>& starts, int64_t length) const;

  Tokens tokens_;
  int64_t block_size_;
  at::Device device_;
};

}  // namespace gpt
