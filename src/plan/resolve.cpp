#include "gpt/plan/resolve.h"

#include <utility>

#include "gpt/config/automatic.h"
#include "gpt/plan/batch_choice.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/run/same_run.h"

namespace gpt::plan {

Resolution resolve(const Config& asked, const config::Origins& origins, at::Device device,
                   const run::Beginning& begins) {
  Config config = asked;
  if (begins.start) config::keep_choices(config, origins, begins.start->checkpoint.config);
  Corpus corpus = run::load_corpus(begins, config);
  config.model.vocab_size = vocabulary_for(corpus, config.model.vocab_size);
  std::vector<std::string> changes;
  if (begins.start) changes = run::require_same_configuration(*begins.start, config);
  run::Setup setup = run::set_up(std::move(config), std::move(corpus), device, asked.training.precision);
  choose_batch_size(setup, /*is_tried=*/true);
  keep_resolved(setup.config.training, setup.precision);  // whose gradients' type depends on the batch
  return {std::move(setup), std::move(changes)};
}

run::Setup resolve(const Config& asked) {
  Corpus corpus = gpt::load_corpus(asked.data, asked.model.block_size, "", asked.model.vocab_size);
  const at::Device device = select_device(asked.device).device;
  run::Setup setup = run::set_up(asked, std::move(corpus), device, asked.training.precision);
  choose_batch_size(setup, /*is_tried=*/false);
  keep_resolved(setup.config.training, setup.precision);
  return setup;
}

}  // namespace gpt::plan
