// ckpt.pt: everything a run needs to continue as if it had never stopped, in one file that Python's
// torch.load(path, weights_only=True) opens as a dict with `model`, `optimizer`, `config`, `step`, ...
// Our own reader never looks at that pickle, so nothing in the file is ever executed. It uses only these records:
//   config.yaml      the effective configuration     tokenizer.json   the tokenizer
//   checkpoint.json  the plain values, and the name, dtype and shape of every tensor
//   data/NAME        the bytes of the tensor NAME, which is model/..., exp_avg/..., exp_avg_sq/..., optimizer/step,
//                    scaler/scale, scaler/growth_tracker, rng/cpu or rng/cuda
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "gpt/config/config.h"
#include "gpt/model/named_tensors.h"

namespace gpt {

struct Checkpoint {
  int64_t step = 0;  // completed updates, including skipped ones
  NamedTensors model;
  NamedTensors exp_avg, exp_avg_sq;
  at::Tensor optimizer_step;                       // float32 scalar: applied updates
  at::Tensor scaler_scale, scaler_growth_tracker;  // undefined without a GradScaler
  std::map<std::string, at::Tensor> rng;           // "cpu", "cuda": generator states, uint8
  int64_t data_round = 0, data_sample = 0;         // DataPosition
  double best_val_loss = 0;                        // +inf before the first evaluation
  int64_t skipped_steps = 0, consecutive_skipped_steps = 0;
  int64_t evaluated_step = 0;  // the last step whose evaluation was completed
  Config config;               // effective; for Python a nested dict {section: {key: value}}
  std::string tokenizer;       // JSON
  std::string data_fingerprint;
  std::string started_by;      // what training.resume_from said when the run began: auto, none, or an absolute path
  std::map<std::string, std::string> environment;  // build, device, cpu, threads: differences are reported on resume
};

// Tensors may be on any device. Throws gpt::Error(disk), leaving the old file untouched; refuses non-finite weights with
// gpt::Error(numerics).
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// What a program may go on from: a whole file whose parts fit together. The model that it describes is checked against the
// tensors that are there before anything is allocated for it. Throws gpt::Error(checkpoint) with the reason. Tensors are on the
// CPU.
Checkpoint load_checkpoint(const std::string& path);

// Only what the file format promises: each byte is what was written. Whether the parts fit together is not looked at.
Checkpoint read_checkpoint(const std::string& path);

// Whether the dict that Python's torch.load() would return, the record that our reader never looks at, is the one that
// save_checkpoint() writes for this checkpoint.
bool has_our_python_view(const std::string& path, const Checkpoint& checkpoint);

}  // namespace gpt
