// Runs whose model has stages, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "run/mesh_run.h"

namespace gpt::run {

// Five micro-batches, so that of two groups one has three and the other has two, and four stages are never all busy with the second.
inline Config pipelined_run(const data::Corpus& corpus) {
  Config config = divided_run(corpus);
  config.model.n_layer = 4;
  config.training.gradient_accumulation_steps = 5;
  return config;
}

inline void untie(Config& config) { config.model.tie_weights = false; }

// Calls look(run, stage) in each process of a mesh, after so many updates.
template <typename Look>
void in_mesh(const Shape& shape, const Config& config, const data::Corpus& corpus, int64_t updates, const Look& look) {
  in_mesh(shape, config, corpus, [&](const Setup& setup) {
    Run run(setup);
    for (int64_t i = 0; i < updates; ++i) EXPECT_TRUE(run.update([] { return false; }));
    look(run, setup.mesh.pipeline.stages->rank());
  });
}

}  // namespace gpt::run
