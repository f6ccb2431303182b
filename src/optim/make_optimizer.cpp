#include "gpt/optim/make_optimizer.h"

#include <utility>

#include "gpt/optim/adamw.h"
#include "gpt/optim/averaged_optimizer.h"
#include "gpt/optim/muon.h"

namespace gpt::optim {

std::unique_ptr<Optimizer> make_optimizer(const parameters::Parameters& parameters, const OptimizerConfig& config,
                                          const std::vector<layout::FlatSpan>& spans) {
  if (config.has_averages()) {
    OptimizerConfig of_weights = config;
    of_weights.ema_decay = 0;
    return std::make_unique<AveragedOptimizer>(make_optimizer(parameters, of_weights, spans), parameters, config);
  }
  if (!config.has_muon()) return std::make_unique<AdamW>(parameters, config, spans);
  return std::make_unique<Muon>(parameters, config, spans);
}

std::string name_of_optimizer(const OptimizerConfig& config) {
  const std::string name = config.has_muon() ? Muon::name(config) : std::string(AdamW::name(config));
  return config.has_averages() ? AveragedOptimizer::name(name, config) : name;
}

}  // namespace gpt::optim
