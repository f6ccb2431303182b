#include "gpt/plan/resolve.h"

#include <utility>

#include "gpt/plan/batch_choice.h"
#include "gpt/prepare/load_corpus.h"

namespace gpt::plan {
namespace {

run::Setup resolve(Config config, Corpus corpus, at::Device device, const PrecisionConfig& asked, bool tries_steps) {
  run::Setup setup = run::set_up(std::move(config), std::move(corpus), device, asked);
  choose_batch_size(setup, tries_steps);
  keep_resolved(setup.config.training, setup.precision);  // whose gradients' type depends on the batch
  return setup;
}

}  // namespace

run::Setup resolve(run::RunData data, at::Device device, const PrecisionConfig& asked) {
  return resolve(std::move(data.config), std::move(data.corpus), device, asked, /*tries_steps=*/true);
}

run::Setup resolve(const Config& asked) {
  Corpus corpus = load_corpus(asked.data, asked.model.block_size, "", asked.model.vocab_size);
  return resolve(asked, std::move(corpus), select_device(asked.device).device, asked.training.precision,
                 /*tries_steps=*/false);
}

}  // namespace gpt::plan
