#include "gpt/optim/make_optimizer.h"

#include <c10/util/Exception.h>

#include "gpt/optim/adamw.h"
#include "gpt/optim/muon.h"

namespace gpt {

std::unique_ptr<Optimizer> make_optimizer(const Parameters& parameters, const OptimizerConfig& config,
                                          const std::vector<FlatSpan>& spans) {
  if (!config.has_muon()) return std::make_unique<AdamW>(parameters, config, spans);
  const bool has_all = spans.size() == 1 && spans[0].begin == 0 && spans[0].end == parameters.layout().trained_size;
  TORCH_CHECK(has_all, "Muon updates whole matrices, and has no part of the parameters");
  return std::make_unique<Muon>(parameters, config);
}

std::string name_of_optimizer(const OptimizerConfig& config) {
  return config.has_muon() ? Muon::name(config) : std::string(AdamW::name(config));
}

}  // namespace gpt
