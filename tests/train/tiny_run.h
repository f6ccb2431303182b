// A run of seconds for the tests of what a run is, and of how it goes on.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "gpt/run/state.h"
#include "gpt/run/train_step.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/counted_graphs.h"

namespace gpt {

inline constexpr int64_t kUpdates = 6, kStop = 3;

inline data::Corpus some_corpus(int lines = 60) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += std::to_string(i * i) + " is the square of " + std::to_string(i) + ".\n";
  data::Corpus corpus;
  corpus.tokenizer = tokenizer::make_tokenizer("char", text);
  corpus.vocab_size = corpus.tokenizer->vocab_size();
  corpus.train = data::Tokens::from_ids(corpus.tokenizer->encode(text), corpus.vocab_size);
  corpus.sources = {corpus.train};
  return corpus;
}

// Dropout and accumulation on, so that every random stream is in use.
inline Config tiny_config(const data::Corpus& corpus) {
  Config config;
  config.seed = 3;
  config.model.n_layer = 2;
  config.model.n_head = 2;
  config.model.n_embd = 16;
  config.model.block_size = 8;
  config.model.dropout = 0.2;
  config.model.vocab_size = corpus.vocab_size;
  config.training.batch_size = 4;
  config.training.gradient_accumulation_steps = 2;
  return config;
}

inline run::Beginning beginning_at(const run::StartingPoint* start) {
  return {.start = start ? std::optional(*start) : std::nullopt, .initial = {}};
}

struct TinyRun {
  TinyRun(const Config& config, const data::Corpus& corpus, at::Device device, const device::Precision& precision,
          const run::StartingPoint* start = nullptr, bool is_recorded = false)
      : state(config, corpus, device, precision, beginning_at(start)),
        step({state.model, *state.optimizer, state.scaler, state.counts(), state.watch()},
             {precision, state.dropout_seed()}, config.training,
             is_recorded ? test::counting_recorder(state.model, replays) : run::Recorder()),
        micro_batches(config.training.gradient_accumulation_steps) {}

  // The losses of the updates up to `last`.
  std::vector<double> train_to(int64_t last) {
    std::vector<double> losses;
    for (; state.step < last; ++state.step) {
      run::run_update(step, state.loader, micro_batches, /*learning_rate=*/1e-2, state.step, [] { return false; });
      losses.push_back(step.loss().item<double>());
    }
    return losses;
  }

  int64_t replays = 0;  // how often recorded parts of the step were replayed
  run::State state;
  run::TrainStep step;
  int64_t micro_batches;
};

inline void expect_equal(const parameters::NamedTensors& a, const parameters::NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
}

inline void expect_same_weights_and_moments(const checkpoint::Checkpoint& a, const checkpoint::Checkpoint& b) {
  expect_equal(a.model, b.model);
  for (const std::string_view slot : optim::kOptimizerSlots)
    expect_equal(a.optimizer.slot(slot), b.optimizer.slot(slot));
  EXPECT_TRUE(a.optimizer.step_count.equal(b.optimizer.step_count));
}

}  // namespace gpt
