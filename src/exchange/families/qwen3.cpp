// Qwen3: Llama with norms of queries and keys, and heads that may be wider than their share of the model. llama.cpp leaves their rows in
// their order. The windows that its configuration can have are off in the models that are published.
#include "exchange/families/llama.h"

namespace gpt::exchange {
namespace {

void set_qwen3_form(ModelConfig& model) {
  set_llama_blocks(model);
  model.bias = false, model.qk_norm = QkNorm::heads;
}

nlohmann::ordered_json qwen3_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"Qwen3ForCausalLM"}}, {"model_type", "qwen3"}};
  file.update(llama_settings(m));
  file.update({{"attention_bias", false},
               {"use_sliding_window", false},
               {"sliding_window", nullptr},
               {"max_window_layers", m.n_layer}});
  return file;
}

ModelConfig read_qwen3(const ConfigSettings& s) {
  ModelConfig m = read_llama_settings(s);
  s.must_be("attention_bias", {false});
  require_full_layers(s, m);
  if (!s.has("head_dim")) m.n_head_dim = 128;  // as transformers has it, whatever the other widths are
  m.qk_norm = QkNorm::heads;
  return m;
}

constexpr Limit kQwen3Limits[] = {kNoLlama3};
const Architecture kQwen3Architecture = {.name = "qwen3", .keys = llama_keys, .limits = kQwen3Limits};
constexpr const Architecture* kQwen3Architectures[] = {&kQwen3Architecture};

}  // namespace

const Family kQwen3Family = {.name = "Qwen3",
                             .form = "rmsnorm, swiglu, rope, norms of queries and keys",
                             .model_type = "qwen3",
                             .architectures = kQwen3Architectures,
                             .set_form = set_qwen3_form,
                             .counterparts = llama_counterparts_in_halves,
                             .config_json = qwen3_json,
                             .read_config = read_qwen3,
                             .ctranslate2_limits = kOfCTranslate2};

}  // namespace gpt::exchange
