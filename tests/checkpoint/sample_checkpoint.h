// A small checkpoint with something unusual in every field. e2e/test_checkpoint_python.py knows the same values.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "gpt/checkpoint/checkpoint.h"

namespace gpt::test {

inline checkpoint::Checkpoint sample_checkpoint() {
  using Limits = std::numeric_limits<float>;
  checkpoint::Checkpoint sample;
  sample.step = 42;
  sample.model = {
      {"transformer.wte.weight", at::arange(35, at::kFloat).view({7, 5}).div(8).sub(2)},
      {"transformer.h.0.attn.c_attn.weight", at::arange(12, at::kFloat).div(4).view({3, 4}).to(at::kBFloat16)},
      {"transformer.ln_f.weight", at::tensor({Limits::max(), Limits::lowest(), Limits::denorm_min(), -0.0f, 1.0f})},
      {"scalar", at::scalar_tensor(0.1, at::kDouble)},
      {"half", at::arange(6, at::kHalf).view({1, 2, 1, 3})},
      {"empty", at::zeros({0, 3})},
  };
  for (const auto& [name, tensor] : sample.model) {
    sample.optimizer.slot("exp_avg").emplace_back(name, at::full(tensor.sizes(), -0.5));
    sample.optimizer.slot("exp_avg_sq").emplace_back(name, at::full(tensor.sizes(), 0.25));
  }
  sample.optimizer.step_count = at::scalar_tensor(41, at::kFloat);
  sample.scaler_scale = at::scalar_tensor(65536, at::kFloat);
  sample.scaler_growth_tracker = at::scalar_tensor(7, at::kInt);
  sample.rng = {{"cpu", at::arange(256, at::kInt).to(at::kByte)}, {"cuda", at::full({16}, 255, at::kByte)}};
  sample.data_round = 3;
  sample.data_sample = (int64_t{1} << 40) + 1;
  sample.best_val_loss = std::numeric_limits<double>::infinity();
  sample.skipped_steps = 5;
  sample.consecutive_skipped_steps = 2;
  sample.spike_window = at::arange(6, at::kFloat).view({2, 3}).div(4);
  sample.spike_accepted = at::scalar_tensor(35, at::kLong);
  sample.spikes = 3;
  sample.rollbacks = 2;
  sample.learning_rate_factor = 0.25;
  sample.decisions = {{12, "learning_rate_factor", 0.5}, {33, "learning_rate_factor", 0.25}};
  sample.proven_step = 20;
  sample.waiting_step = 30;
  sample.warmup_steps = 10;
  sample.config.training.schedule.lr_schedule = LrSchedule::plateau;  // of which a checkpoint has the next values
  sample.plateau = {.best = 1.5, .without_improvement = 2, .cooling_down = 1, .factor = 0.125};
  sample.chosen_products = R"({"made_for": "a card"})";
  sample.recording_failed = true;
  sample.teacher = "89abcdef";
  sample.started_by = "none";
  sample.evaluated_step = 40;
  sample.evaluations_since_best = 3;
  sample.eval_sequences = 512;
  sample.config.model.n_layer = 3;
  sample.config.model.vocab_size = 65;
  sample.config.data.text = "caf\xe9.txt";  // a file name in Latin-1
  sample.config.training.schedule.learning_rate = 3e-4;
  sample.config.training.precision.use_amp = false;
  sample.config.training.cadence.checkpoint_interval = {2, Interval::Unit::epochs};
  sample.config.training.cadence.sample_prompt = "Größe: \"x\"\n";
  sample.tokenizer = R"({"type": "char", "characters": "\n aé"})";
  sample.text_format = tokenizer::TextFormat{.begin = 1, .pad = 2, .ends = {3, 4}, .chat_template = "{{ \"é\" }}\n"};
  sample.data_fingerprint = "0123abcd";
  sample.environment = {{"cpu", "a CPU"}, {"threads", "2"}};
  return sample;
}

}  // namespace gpt::test
