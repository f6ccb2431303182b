#include "gpt/model/attention_form.h"

#include <c10/util/Exception.h>

#include "gpt/core/error.h"

namespace gpt::model {

void require_attention_on(const ModelConfig& config, at::Device device) {
  if (config.top_blocks() == 0 || device.is_cpu()) return;
  throw Error(ExitCode::config,
              "a model with attention in chosen blocks is computed on a CPU alone so far; set --device cpu");
}

void require_whole_sequences(const ModelConfig& config) {
  TORCH_CHECK(config.top_blocks() == 0, "attention in chosen blocks knows no documents within a sequence");
}

}  // namespace gpt::model
