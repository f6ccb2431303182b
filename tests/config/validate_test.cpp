#include <gtest/gtest.h>

#include "config/faults.h"

namespace gpt::config {
namespace {

TEST(Validate, DefaultsAndPresetsAreSound) {
  EXPECT_EQ(yaml_fault(""), "no fault");
  for (const char* preset : {"gpt2_small", "gpt2_medium", "gpt2_large", "gpt2_xl", "char_small"}) {
    EXPECT_EQ(yaml_fault(std::string("model: {preset: ") + preset + "}\n"), "no fault") << preset;
  }
}

TEST(Validate, RefusesContradictionsWhereTheyWereWritten) {
  const std::pair<const char*, const char*> cases[] = {
      {"model:\n  n_embd: 100\n  n_head: 6\n",
       "c.yaml:2:3: n_embd 100 is not divisible by n_head 6; set n_embd to 96 or 102, or n_head to 5 or 10"},
      {"model:\n  n_head: 7\n",
       "c.yaml:2:3: n_embd 384 is not divisible by n_head 7; set n_embd to 378 or 385, or n_head to 6 or 8"},
      {"model:\n  n_embd: 4\n  n_head: 6\n",
       "c.yaml:2:3: n_embd 4 is not divisible by n_head 6; set n_embd to 6, or n_head to 4"},
      {"model:\n  n_kv_head: 4\n  n_head: 6\n",
       "c.yaml:2:3: n_head 6 is not divisible by n_kv_head 4; set n_kv_head to 3 or 6"},
      {"model:\n  n_embd: 18\n  n_head: 6\n",
       "c.yaml:2:3: position rope needs an even head size, but n_embd 18 / n_head 6 = 3; set n_embd to 12 or 24"},
      {"model:\n  n_embd: 100\n  n_head: 6\n  head_dim: 15\n",
       "c.yaml:4:3: position rope needs an even head size, but head_dim is 15; set head_dim to 14 or 16"},
      {"model:\n  attention_block: 100\n  attention: blocks\n",
       "c.yaml:2:3: 'model.attention_block' must be a multiple of 64, got 100; use 64 or 128"},
      {"model:\n  attention: blocks\n  attention_window: 128\n",
       "c.yaml:2:3: model.attention blocks chooses what a token sees, and attention_window 128 hides it by distance; set attention_window to 0, or model.attention to full"},
      {"model:\n  attention: blocks\ndata:\n  document_mask: true\n",
       "c.yaml:2:3: model.attention blocks chooses by means over whole blocks, in which documents end and begin, and document_mask keeps documents apart; set document_mask to false, or model.attention to full"},
      {"model:\n  window_pattern: SsL\n",
       "c.yaml:2:3: 'model.window_pattern' must be letters S (windowed) and L (full), such as SSSL, got 'SsL'"},
      {"model:\n  rope_pattern: RRX\n",
       "c.yaml:2:3: 'model.rope_pattern' must be letters R (rotated) and N (not), such as RRRN, got 'RRX'"},
      {"model:\n  window_pattern: \"\"\n",
       "c.yaml:2:3: 'model.window_pattern' must be letters S (windowed) and L (full), such as SSSL, got ''"},
      {"device: gpu\n", "c.yaml:1:1: 'device' must be auto, cpu, cuda or cuda:N, got 'gpu'; did you mean 'cuda'?"},
      {"device: gpu:1\n",
       "c.yaml:1:1: 'device' must be auto, cpu, cuda or cuda:N, got 'gpu:1'; did you mean 'cuda:1'?"},
      {"training:\n  init_from: a\n  resume_from: b\n",
       "c.yaml:2:3: init_from begins a new run with the weights of a checkpoint, and resume_from continues the run of one; "
       "keep one of them"},
      {"device: \"cuda:\"\n", "c.yaml:1:1: 'device' must be auto, cpu, cuda or cuda:N, got 'cuda:'"},
      {"output_dir: \"\"\n", "c.yaml:1:1: 'output_dir' must name a folder, got ''"},
      {"data:\n  text: a\n  dataset: shakespeare\n",
       "c.yaml:3:3: only one of data.text, data.dataset and data.bin can be set; keep one of them"},
      {"data:\n  text: a\n  bin: b\n",
       "c.yaml:3:3: only one of data.text, data.dataset and data.bin can be set; keep one of them"},
      {"data:\n  validation_bin: b\n",
       "c.yaml:2:3: validation_bin belongs to a bin; set data.bin too, or leave validation_bin out"},
      {"data:\n  metadata: m\n", "c.yaml:2:3: metadata describes a bin; set data.bin too, or leave metadata out"},
      {"data:\n  bin: b\n  metadata: m\n  max_chars: 5\n",
       "c.yaml:4:3: max_chars limits the characters of a text; leave it out for a bin"},
      {"data:\n  prefetch_factor: 0\n  num_workers: 4\n",
       "c.yaml:2:3: with prefetch_factor 0, 4 workers would prepare nothing; set prefetch_factor to 2, or num_workers to 0"},
      {"training:\n  epochs: 2\n  max_steps: 5\n",
       "c.yaml:3:3: epochs 2 and max_steps 5 both set the length of the run; keep one"},
      {"training:\n  learning_rate: 1e-6\n",
       "c.yaml:2:3: min_lr 1e-05 is above learning_rate 1e-06; set min_lr to a tenth of it"},
      {"training:\n  lr_schedule: wsd\n  min_lr: 0.01\n",
       "c.yaml:3:3: min_lr 0.01 is above learning_rate 0.001; set min_lr to a tenth of it"},
      {"training:\n  lr_schedule: plateau\n  eval_interval: 0\n",
       "c.yaml:2:3: lr_schedule plateau follows the validation loss, but eval_interval is 0; set it to a number of steps, such as 500"},
      {"training:\n  warmup_steps: 5000\n",
       "c.yaml:2:3: warmup_steps 5000 must be less than max_steps 5000; a tenth of it is usual"},
      {"training:\n  max_steps: 50\n  warmup_steps: 100\n",
       "c.yaml:3:3: warmup_steps 100 must be less than max_steps 50; a tenth of it is usual"},
      {"model: {dropout: 0.1}\ntraining:\n  attention: cudnn\n",
       "c.yaml:3:3: attention cudnn would round dropout 0.1 to a sixteenth; set attention to auto, or dropout to 0.125"},
      {"training:\n  fused_adamw: false\n  use_8bit: true\n",
       "c.yaml:3:3: only the kernel of fused_adamw updates a state of 8 or 16 bits; set optimizer_state_dtype to float32, or fused_adamw to true"},
      {"training:\n  fused_adamw: false\n  optimizer: muon\n",
       "c.yaml:3:3: fused_adamw false is for comparison with AdamW's own kernel alone; set optimizer to adamw, or fused_adamw to true"},
      {"training:\n  optimizer: normuon\ndistributed:\n  zero: 3\n",
       "c.yaml:4:3: zero 3 divides matrices, and Muon needs whole ones; set zero to 2, or optimizer to adamw"},
      {"training:\n  freeze: [h.0]\ndistributed:\n  zero: 3\n",
       "c.yaml:4:3: zero 3 divides the weights of blocks that are trained as a whole; set zero to 2, or leave freeze out"},
      {"training:\n  use_compile: false\ndistributed:\n  zero: 2\n",
       "c.yaml:4:3: zero 2 needs use_compile's operators, which tell when a layer's gradients are complete; set zero to 1, or "
       "use_compile to true"},
      {"training:\n  fused_adamw: false\n  cpu_offload: true\n",
       "c.yaml:3:3: only the kernel of fused_adamw reaches a state in the memory of the host; set offload_optimizer to 0, or fused_adamw to true"},
      {"training:\n  use_amp: false\n  dtype: bfloat16\n",
       "c.yaml:2:3: use_amp false means float32 (or tf32), but dtype is a 16-bit type; set use_amp to true, or dtype to float32"},
      {"training:\n  gradient_checkpointing: norm\n  use_compile: false\n",
       "c.yaml:2:3: gradient_checkpointing norm needs the operators of use_compile; set use_compile to true, or gradient_checkpointing to none, selective or block"},
      {"training:\n  quantized_forward: int8\n  use_compile: false\n",
       "c.yaml:2:3: quantized_forward needs the operators of use_compile; set use_compile to true, or quantized_forward to none"},
      {"training:\n  amp_mode: autocast\n  quantized_forward: fp8\n",
       "c.yaml:3:3: quantized_forward does not go with autocast, which casts what products take; set amp_mode to auto, or use_amp to false, or quantized_forward to none"},
      {"training:\n  quantized_forward: int8\ndistributed:\n  zero: 3\n",
       "c.yaml:2:3: quantized_forward keeps weights in 8 bits, which zero 3 divides; set zero to 2, or quantized_forward to none"},
      {"training:\n  quantized_forward: int8\ndistributed:\n  tensor_parallel: 2\n",
       "c.yaml:2:3: quantized_forward rounds whole rows, which tensor_parallel divides; set tensor_parallel to 1, or "
       "quantized_forward to none"},
      {"model:\n  n_layer: 4\ntraining:\n  quantized_forward: int8\n  quantized_forward_skip: 2\n",
       "c.yaml:5:3: quantized_forward leaves out 2 blocks at each end, and the model has 4 blocks; set quantized_forward_skip to 1, or quantized_forward to none"},
      {"model:\n  n_layer: 2\ntraining:\n  quantized_forward: int8\n",
       "c.yaml:4:3: quantized_forward leaves out 1 block at each end, and the model has 2 blocks; set quantized_forward_skip to 0, or quantized_forward to none"},
      {"training:\n  on_divergence: rollback\n",
       "c.yaml:2:3: on_divergence rollback goes back to checkpoints that are saved after a number of steps, but "
       "checkpoint_interval is 10 minutes; set it to a number of steps, such as 500"},
      {"training:\n  checkpoint_interval: 0\n  on_divergence: rollback\n",
       "c.yaml:3:3: on_divergence rollback goes back to checkpoints that are saved after a number of steps, but "
       "checkpoint_interval is 0; set it to a number of steps, such as 500"},
      {"training:\n  on_divergence: retry\n",
       "c.yaml:2:18: 'training.on_divergence' must be one of off, stop, skip, rollback, got 'retry'"},
      {"training:\n  total_batch_size: 100\n  batch_size: 48\n",
       "c.yaml:3:3: total_batch_size 100 is not divisible by batch_size 48; set total_batch_size to 96 or 144, or batch_size to 25 or 50"},
      {"training:\n  total_batch_size: 48\n",
       "c.yaml:2:3: total_batch_size 48 is not divisible by batch_size 64; set total_batch_size to 64, or batch_size to 48"},
      {"training:\n  total_batch_size: 32\n  batch_size: 8\n  gradient_accumulation_steps: 2\n",
       "c.yaml:4:3: batch_size 8 times gradient_accumulation_steps 2 is 16, not total_batch_size 32; set gradient_accumulation_steps to 4, or total_batch_size to 16"},
      {"training:\n  batch_size: auto\n",
       "c.yaml:2:3: batch_size auto needs total_batch_size, the sequences per update, because they decide how the run "
       "learns; set total_batch_size, such as 64, or batch_size to a number"},
      {"training:\n  batch_size: auto\n  gradient_accumulation_steps: 4\n  total_batch_size: 32\n",
       "c.yaml:3:3: batch_size auto chooses the number of micro-steps too, but gradient_accumulation_steps is 4; leave "
       "that out, or set batch_size to a number"},
      {"model: {attention_window: 64}\ndata:\n  stages: [{from: 0, attention_window: 65}]\n",
       "c.yaml:3:3: the stage from step 0 has a window of 65 positions, more than the model's attention_window 64; a stage may only narrow it; set attention_window to 65"},
      {"training: {batch_size: auto, total_batch_size: 32}\ndata:\n  stages: [{from: 0, block_size: 100}]\n",
       "c.yaml:3:3: with batch_size auto the sequences of a stage must divide those of the run, of 256 tokens, but the stage "
       "from step 0 has 100; set batch_size to a number"},
      {"training:\n  batch_size: 0\n",
       "c.yaml:2:15: 'training.batch_size' must be auto or a whole number from 1 to 1e6, got '0'"},
      {"training: {batch_size: 8}\ndistributed: {processes: 12, pipeline_parallel: 2, lanes: 4}\n",
       "c.yaml:2:52: lanes 4 cannot be divided among 6 groups of processes; set processes to 2, which have a model between them, "
       "times a power of two of at most 4"},
  };
  for (const auto& [yaml, fault] : cases) EXPECT_EQ(yaml_fault(yaml), fault) << yaml;
}

TEST(Validate, AllowsWhatOnlyLooksLikeAContradiction) {
  for (const char* yaml :
       {"model: {n_embd: 18, position: learned}\n", "data: {bin: b}\nmodel: {vocab_size: 5}\n",
        "data: {num_workers: 0, prefetch_factor: 0}\n", "data: {prefetch_factor: 0}\n",
        "training: {epochs: 1, warmup_steps: 100000}\n", "training: {learning_rate: 1e-6, lr_schedule: constant}\n",
        "training: {use_amp: false, dtype: tf32}\n",
        "training: {use_amp: false, amp_mode: autocast, quantized_forward: int8}\n",
        "training: {fused_adamw: false, use_8bit: false}\n", "training: {on_divergence: off}\n",
        "training: {on_divergence: skip}\n", "training: {on_divergence: rollback, checkpoint_interval: 1 epoch}\n",
        "training: {batch_size: 8, gradient_accumulation_steps: 4, total_batch_size: 32}\n",
        "training: {batch_size: auto, total_batch_size: 1}\ndata: {stages: [{from: 0, block_size: 64}, {from: 9}]}\n",
        "device: cuda:15\n", "training: {max_steps: 1}\n", "model: {dropout: 0.125}\ntraining: {attention: cudnn}\n"}) {
    EXPECT_EQ(yaml_fault(yaml), "no fault") << yaml;
  }
}

TEST(Validate, TrainingNeedsData) {
  Config config;
  EXPECT_EQ(fault_of([&] { require_data(config, "c.yaml"); }),
            "c.yaml: no data to train on; name a text with --data FILE, or tokens with --bin FILE, or use --dataset "
            "shakespeare");
  EXPECT_EQ(fault_of([&] { require_data(config, ""); }).rfind("no data to train on", 0), 0u);
  config.data.text = "x";
  EXPECT_EQ(fault_of([&] { require_data(config, "c.yaml"); }), "no fault");
}

}  // namespace
}  // namespace gpt::config
