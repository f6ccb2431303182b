#include "gpt/model/attention_form.h"

#include "gpt/core/error.h"

namespace gpt {

void require_attention_on(const ModelConfig& config, at::Device device) {
  if (config.top_blocks() == 0 || device.is_cpu()) return;
  throw Error(ExitCode::config,
              "model.attention: blocks is computed on a CPU alone so far; set device: cpu (--device cpu), or "
              "model.attention: full");
}

void require_whole_sequences(const ModelConfig& config) {
  if (config.top_blocks() == 0) return;
  throw Error(
      ExitCode::config,
      "data.document_mask keeps documents apart, and a model with attention: blocks chooses by means over whole "
      "blocks, in which documents end and begin; set data.document_mask: false, or model.attention: full");
}

}  // namespace gpt
