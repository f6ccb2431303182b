#include "gpt/run/setup.h"

#include <algorithm>
#include <utility>

#include "gpt/config/rules.h"
#include "gpt/data/document_mask.h"
#include "gpt/device/memory.h"
#include "gpt/run/quantized_forward.h"

namespace gpt::run {

config::Facts facts_of(const Setup& setup) {
  config::Facts facts = device::facts_of(setup.device, setup.precision);
  const data::Corpus& corpus = setup.corpus;
  facts.processes = setup.mesh.all->size();
  facts.data_processes = setup.mesh.data->size();
  facts.has_validation = corpus.validation.size() > 0;
  facts.has_own_split = corpus.has_own_split;
  facts.has_json_lines = corpus.has_json_lines;
  facts.has_conversations = std::ranges::any_of(corpus.sources, &data::Tokens::has_marks);
  return facts;
}

Setup set_up(Config config, data::Corpus corpus, at::Device device, const PrecisionConfig& asked) {
  config.model.vocab_size = data::vocabulary_for(corpus, config.model.vocab_size);
  (void)data::document_separator(config.data, corpus);  // which refuses documents that cannot be told apart
  device::configure_memory(config.training, device);
  const device::DeviceInfo info = device::describe_device(device);
  const std::string change = device::choose_again_if_missing(config.training.precision, asked, info);
  const device::Precision precision = device::resolve_precision(config.training.precision, info);
  device::apply_precision(precision, config.training.execution.deterministic);
  Setup setup{std::move(config), std::move(corpus), info, precision, change, {}};
  config::require_agreement(setup.config, facts_of(setup));
  require_quantized_forward(setup.config.training, info);
  return setup;
}

Setup for_trial(Setup setup) {
  setup.config.data.stages.clear();
  setup.config.data.order = DataOrder::random;
  setup.mesh = distributed::no_mesh();
  return setup;
}

}  // namespace gpt::run
