// Qwen2 and Qwen2.5: Llama with biases of queries, keys and values alone, whose rows llama.cpp leaves in their order. The windows that its
// configuration can have are off in the models that are published.
#include "exchange/families/llama.h"

namespace gpt::exchange {
namespace {

void set_qwen2_form(ModelConfig& model) {
  set_llama_blocks(model);
  model.bias = false, model.qkv_bias = true;
  model.n_head_dim = model.n_embd / model.heads();
}

nlohmann::ordered_json qwen2_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"Qwen2ForCausalLM"}}, {"model_type", "qwen2"}};
  file.update(llama_settings(m));
  file.update({{"use_sliding_window", false}, {"sliding_window", nullptr}, {"max_window_layers", m.n_layer}});
  return file;
}

ModelConfig read_qwen2(const ConfigSettings& s) {
  ModelConfig m = read_llama_settings(s);
  require_full_layers(s, m);
  m.qkv_bias = true;
  return m;
}

constexpr Limit kQwen2Limits[] = {kNoLlama3};
const Architecture kQwen2Architecture = {.name = "qwen2", .keys = llama_keys, .limits = kQwen2Limits};
constexpr const Architecture* kQwen2Architectures[] = {&kQwen2Architecture};

}  // namespace

const Family kQwen2Family = {.name = "Qwen2",
                             .form = "rmsnorm, swiglu, rope, biases of queries, keys and values",
                             .model_type = "qwen2",
                             .architectures = kQwen2Architectures,
                             .set_form = set_qwen2_form,
                             .counterparts = llama_counterparts_in_halves,
                             .config_json = qwen2_json,
                             .read_config = read_qwen2,
                             .ctranslate2_limits = kOfCTranslate2,
                             .auto_split = "qwen2"};  // of transformers 5.24: findings/qwen2_tokenizers.sh

}  // namespace gpt::exchange
