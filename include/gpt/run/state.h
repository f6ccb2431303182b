// All the state of a run that a checkpoint saves: model, optimizer, scaler, data position, random state and counters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "gpt/batches/data_loader.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/device/precision.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/verdict.h"
#include "gpt/optim/grad_scaler.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parallel/division.h"
#include "gpt/parallel/rounded_moments.h"
#include "gpt/run/beginning.h"
#include "gpt/run/folder.h"
#include "gpt/run/plan.h"

namespace gpt::run {

// What determines the batches of a run: its configuration, in the form that the loader needs.
data::ScheduleOptions schedule_options(const Config& config, const data::Corpus& corpus);

// The micro-batches that a run has in an epoch, before there is one.
int64_t batches_in_epoch(const Config& config, const data::Corpus& corpus);

// About the size of one checkpoint as a file; `tokenizer` may be null.
uint64_t checkpoint_file_bytes(const Config& config, const tokenizer::Tokenizer* tokenizer);

// The values that a run remembers besides tensors are its own members (Remembered).
class State : public checkpoint::Remembered {
  // Weights that adapters go with: which are the base's, and what others that are kept in few bits were before, for checkpoints.
  struct Frozen {
    std::optional<checkpoint::BaseModel> base = {};
    std::set<std::string, std::less<>> from_base = {};
    parameters::NamedTensors in_full = {};
    bool is_drawn = false;  // there is no base, and all of them are drawn anew for each checkpoint
    std::string hash = {};  // of what is kept in few bits; empty where nothing is
  };
  static Frozen find_frozen(const Config& config, const Beginning& begins);
  Frozen frozen_;  // found before the model takes the weights that the run begins with

 public:
  // `config` is the effective one, with vocab_size set. A new run draws its weights, or takes the initial ones, and seeds the
  // default generators from config.seed; otherwise everything is what it was where it starts. Throws gpt::Error(checkpoint) when
  // either is for another model. `division`: what of the run this process computes and remembers.
  State(const Config& config, const data::Corpus& corpus, at::Device device, const device::Precision& precision,
        Beginning begins = {}, const parallel::Division& division = {});

  // Views of the memory in use. Where processes have divided the model or the optimizer's state, its tensors are in parts
  // (Checkpoint::parts), of which this process has its own. Where they have divided layers, prepare_capture() comes first, in all of them; it lasts
  // until discard().
  checkpoint::Checkpoint capture() const;
  bool can_capture() const { return !division_.captures_together() || rounded_.has_value(); }
  void prepare_capture();
  void discard() { rounded_.reset(); }
  const parallel::Division& division() const { return division_; }

  // The part of the state that an abandoned update has moved: the data position and the random state.
  struct Cursor {
    data::DataPosition position;
    std::map<std::string, at::Tensor> rng;
  };
  Cursor cursor() const;
  void rewind(const Cursor& cursor);

  // Weights, moments, AdamW's step count, the loss's scale and what spikes are told by become the checkpoint's, in the memory where they
  // are. Everything else goes on, so that the updates since then count as skipped. Throws gpt::Error(checkpoint) when it is for another
  // model.
  void go_back(const checkpoint::Checkpoint& checkpoint);

  uint64_t checkpoint_bytes() const;  // as checkpoint_file_bytes()

  // What its checkpoints name instead of the weights that its adapters go with; nothing where they have all weights.
  const std::optional<checkpoint::BaseModel>& base() const { return frozen_.base; }

  // What the dropout masks of our operators follow from, besides the update and their place. LibTorch's draw from the default
  // generators.
  uint64_t dropout_seed() const;

  // What train steps count in; the two sums begin at 0 with each epoch.
  const ops::UpdateCounts& counts() const { return counts_; }
  int64_t skipped_steps() const { return counts_.skipped.item<int64_t>(); }              // sync: reads the device
  int64_t skipped_in_a_row() const { return counts_.skipped_in_a_row.item<int64_t>(); }  // sync: reads the device
  // What train steps tell spikes by; undefined with training.on_divergence: off.
  const ops::SpikeWatch& watch() const { return watch_; }
  // How many there have been. sync: reads the device
  int64_t spikes() const { return watch_.spikes.defined() ? watch_.spikes.item<int64_t>() : 0; }

  model::GPT model;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::GradScaler scaler;
  batches::DataLoader loader;

 private:
  void begin();                              // a new run
  void restore(const StartingPoint& start);  // all but the weights
  void await_weights() const;                // which may still be on their way from other processes
  void load_optimizer(const optim::OptimizerState& saved) const;  // of all stages
  void require_own_values(const checkpoint::Checkpoint& checkpoint) const;
  bool tunes_products() const;
  void seed_generators(uint64_t seed) const;
  std::map<std::string, at::Tensor> random_state() const;
  void seek(const checkpoint::Checkpoint& checkpoint, const std::string& path);
  void set_random_state(const std::map<std::string, at::Tensor>& state);
  void load_window(const checkpoint::Checkpoint& checkpoint);
  void capture_values(checkpoint::Checkpoint& into) const;
  void restore_values(const checkpoint::Checkpoint& checkpoint);

  void leave_out_base(checkpoint::Checkpoint& saved) const;

  const Config config_;
  const data::Corpus& corpus_;
  const parallel::Division division_;
  at::Device device_;
  ops::UpdateCounts counts_;
  std::optional<parallel::RoundedMoments> rounded_;
  ops::SpikeWatch watch_;
};

// What a checkpoint records of the build and the machine: resuming is bit for bit only where they are equal.
std::map<std::string, std::string> run_environment(at::Device device);
// What in that is not as it was when the checkpoint was written: "threads: 2 -> 1".
std::vector<std::string> environment_changes(const checkpoint::Checkpoint& checkpoint, at::Device device);

}  // namespace gpt::run
