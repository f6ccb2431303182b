#include "gpt/optim/make_optimizer.h"

#include "gpt/optim/adamw.h"
#include "gpt/optim/muon.h"

namespace gpt {

std::unique_ptr<Optimizer> make_optimizer(const Parameters& parameters, const OptimizerConfig& config,
                                          const std::vector<FlatSpan>& spans) {
  if (!config.has_muon()) return std::make_unique<AdamW>(parameters, config, spans);
  return std::make_unique<Muon>(parameters, config, spans);
}

std::string name_of_optimizer(const OptimizerConfig& config) {
  return config.has_muon() ? Muon::name(config) : std::string(AdamW::name(config));
}

}  // namespace gpt
