// ckpt.pt: everything a run needs to continue as if it had never stopped, in one file that Python's
// torch.load(path, weights_only=True) opens as a dict with `model`, `optimizer`, `config`, `step`, ...
// Our own reader never looks at that pickle, so nothing in the file is ever executed. It uses only these records:
//   config.yaml      the effective configuration     tokenizer.json   the tokenizer
//   checkpoint.json  the plain values, and the name, dtype and shape of every tensor
//   data/NAME        the bytes of the tensor NAME, which is model/..., SLOT/... for each slot of the optimizer (exp_avg/...),
//                    optimizer/step, scaler/scale, scaler/growth_tracker, spikes/window, spikes/accepted, rng/cpu or rng/cuda
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gpt/checkpoint/state.h"
#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"

namespace gpt::checkpoint {

// Tensors may be on any device. Throws gpt::Error(disk), leaving the old file untouched; refuses non-finite weights with
// gpt::Error(numerics).
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// What of a checkpoint is read and verified: all of it; or its model, that is the weights, the configuration, the tokenizer and the plain
// values, which is a third of a file with AdamW's moments. The tensors of training are then undefined, and adapters are merged with the
// weights (gpt/checkpoint/adapters.h), unless they are asked for. Weights that the file leaves to another model (gpt/checkpoint/base.h) are read
// there; of all of it they are in the bits that the run keeps them in, and otherwise in full.
enum class Parts { all, model, model_and_adapters };

// What a program may go on from: a whole file whose parts fit together. The model that it describes is checked against the
// tensors that are there before anything is allocated for it. Throws gpt::Error(checkpoint) with the reason. Tensors are on the
// CPU.
Checkpoint load_checkpoint(const std::string& path, Parts parts = Parts::all);

// The same with Parts::model, where rows are packed as soon as each has been read, if the packer packs them.
Checkpoint load_checkpoint(const std::string& path, parameters::RowPacker& packer);

// For one of several processes that have the optimizer's state between them, and perhaps the weights: the values whose state it needs, and
// those that it needs themselves, of a run that has this configuration. `verifies_all`: also what it does not need.
struct StateNeeds {
  std::function<ValueRanges(const UpdateConfig& config)> ranges;
  std::function<ValueRanges(const UpdateConfig& config)> weights = {};  // nothing: all
  bool verifies_all = false;
};
// The same, where all else is not read, and stands as zeros that take no memory. Without needs.ranges: all of it.
Checkpoint load_checkpoint(const std::string& path, const StateNeeds& needs);

// Only what the file format promises: each byte is what was written. Whether the parts fit together is not looked at.
Checkpoint read_checkpoint(const std::string& path, Parts parts = Parts::all);

// About the size of one file: the tensors of the model and of its optimizer.
uint64_t checkpoint_bytes(const ModelConfig& model, const TrainingConfig& training);

// The dict that Python's torch.load() would return, the record that our reader never looks at: the one that save_checkpoint() writes for this
// checkpoint; plain values and tensors, as another version may have written them; or what only weights_only=True keeps from running code.
enum class PythonView { ours, plain, foreign };
PythonView python_view_of(const std::string& path, const Checkpoint& checkpoint);

}  // namespace gpt::checkpoint
