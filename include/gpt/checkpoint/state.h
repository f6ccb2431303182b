// What a checkpoint holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpt/checkpoint/base.h"
#include "gpt/checkpoint/remembered.h"
#include "gpt/config/config.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/optim/optimizer_state.h"
#include "gpt/parameters/named_tensors.h"
#include "gpt/tokenizer/text_format.h"

namespace gpt::checkpoint {

// What one of several processes has of a tensor that they have between them: elements [begin, end), in their order in memory. With `cut` these
// are elements of the part of the tensor that it describes, in that part's order.
struct TensorPart {
  int64_t begin, end;
  int64_t rank;            // of the process
  at::Tensor values = {};  // (end - begin), at that process; undefined at the others
  std::shared_ptr<const layout::RowCut> cut = {};
};

// Values of parameters, each in its own order, by the parameter's name.
using ValueRanges = std::map<std::string, std::vector<layout::FlatSpan>, std::less<>>;

// A run's state, with the plain values that it keeps itself; those here are kept by others while it goes on, and are rows as well.
struct Checkpoint : Remembered {
  parameters::NamedTensors model;
  optim::OptimizerState optimizer;
  at::Tensor scaler_scale, scaler_growth_tracker;  // undefined without a GradScaler
  std::map<std::string, at::Tensor> rng;           // "cpu", "cuda": generator states, uint8
  int64_t data_round = 0, data_sample = 0;         // DataPosition
  int64_t skipped_steps = 0, consecutive_skipped_steps = 0;
  // Where training.on_divergence looks for spikes: ops::SpikeWatch, and how many there were; otherwise undefined and nothing.
  at::Tensor spike_window, spike_accepted;
  std::optional<int64_t> spikes = {};
  std::optional<std::string> chosen_products = {};  // on a GPU: how they are computed, as ops::chosen_products() has it
  Config config;                                    // effective; for Python a nested dict {section: {key: value}}
  std::string tokenizer;                            // JSON
  std::optional<tokenizer::TextFormat> text_format = {};  // where the run began with a model that has one
  std::string data_fingerprint;
  std::optional<int64_t> sample_start;  // the token that a sample without a prompt begins behind; nothing = not known
  // The model that the adapters go with, where the file names it; and once it has been read the weights of `model` that are its own, which no
  // file of this checkpoint has. Those that the run keeps in few bits are then packed here, and zeros without memory in `model`.
  std::optional<BaseModel> base = {};
  std::set<std::string, std::less<>> from_base = {};
  parameters::FrozenMatrices frozen = {};
  // A tensor on the meta device is in parts: these, in their order, by the name of its record ("exp_avg/transformer.wte.weight").
  std::map<std::string, std::vector<TensorPart>> parts = {};
  // Where one of several processes has read it: the values whose state it has, and those that it has themselves, where these are not all.
  // All else stands as zeros, which mean nothing.
  std::optional<ValueRanges> read_state = {}, read_weights = {};
  std::map<std::string, std::string>
      environment;  // build, device, cpu, threads, masks: differences are reported on resume
};

}  // namespace gpt::checkpoint
