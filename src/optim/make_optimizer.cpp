#include "gpt/optim/make_optimizer.h"

#include "gpt/optim/adamw.h"

namespace gpt {

std::unique_ptr<Optimizer> make_optimizer(const Parameters& parameters, const OptimizerConfig& config,
                                          const std::vector<FlatSpan>& spans) {
  return std::make_unique<AdamW>(parameters, config, spans);
}

std::string name_of_optimizer(const OptimizerConfig& config) { return std::string(AdamW::name(config)); }

}  // namespace gpt
