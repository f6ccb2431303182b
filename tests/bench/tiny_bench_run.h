// A run whose updates take milliseconds, on a text in `folder`.
#pragma once

#include <string>

#include "core/scratch_folder.h"
#include "gpt/config/config.h"

namespace gpt::bench {

inline Config tiny_bench_run(const ScratchFolder& folder) {
  Config config;
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::to_string(i) + ": the quick brown fox jumps over the lazy dog.\n";
  config.data.text = folder.file("text.txt", text);
  config.data.cache_dir = folder / "cache";
  config.device = "cpu";
  config.threads = 1;
  config.model.n_layer = 1, config.model.n_head = 2, config.model.n_embd = 32, config.model.block_size = 16;
  config.model.dropout = 0;
  config.training.batch_size = 4;
  config.training.precision.use_amp = false;
  config.training.precision.dtype = Dtype::float32;
  return config;
}

}  // namespace gpt::bench
