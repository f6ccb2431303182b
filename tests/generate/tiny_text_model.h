// A model of a few characters that writes in no time.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>

#include <memory>
#include <string>

#include "gpt/model/gpt.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::test {

inline constexpr int64_t kBlockSize = 16;
inline const std::string kCharacters = "\n abcdefghijklmnopqrstuvwxyz.,!?";

inline std::unique_ptr<tokenizer::Tokenizer> characters() { return tokenizer::make_tokenizer("char", kCharacters); }

// Weights far larger than at initialisation, so that greedy text wanders instead of repeating one token.
inline std::unique_ptr<model::GPT> tiny_model(at::Device device, int64_t vocab_size,
                                              Position position = Position::rope) {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_kv_head = 1;
  config.n_embd = 16;
  config.block_size = kBlockSize;
  config.vocab_size = vocab_size;
  config.position = position;
  config.dropout = 0.5;
  at::set_num_threads(1);  // on a busy machine threads meet more slowly than this model computes
  parameters::NamedTensors weights;
  at::Generator generator = at::detail::createCPUGenerator(2);
  for (const layout::ParameterRow& row : layout::parameter_table(config))
    weights.emplace_back(row.name, at::randn(row.shape, generator));
  return std::make_unique<model::GPT>(config, device, weights);
}

}  // namespace gpt::test
