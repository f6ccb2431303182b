// Arcee: Llama with the square of ReLU in place of a gated MLP. Of biases llama.cpp knows those of queries, keys and values at most.
#include "exchange/families/llama.h"

namespace gpt::exchange {
namespace {

constexpr const char* kRelu2 = "relu2";

void set_arcee_form(ModelConfig& model) {
  set_llama_blocks(model);
  model.mlp = Mlp::relu2;
}

nlohmann::ordered_json arcee_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"ArceeForCausalLM"}}, {"model_type", "arcee"}};
  file.update(llama_settings(m));
  file["hidden_act"] = kRelu2;
  file.update(llama_biases(m));
  return file;
}

ModelConfig read_arcee(const ConfigSettings& s) {
  constexpr double kTheta = 10'000, kEps = 1e-5;
  ModelConfig m = read_llama_settings(s, kTheta, {kRelu2});
  m.mlp = Mlp::relu2, m.norm_eps = s.number("rms_norm_eps", kEps);
  read_llama_biases(s, m);
  return m;
}

bool has_biases(const ModelConfig& m) { return m.bias; }

constexpr Limit kArceeLimits[] = {{"`bias: true`", has_biases, "has model.bias false"}};
const Architecture kArceeArchitecture = {.name = "arcee", .keys = llama_keys, .limits = kArceeLimits};
constexpr const Architecture* kArceeArchitectures[] = {&kArceeArchitecture};

}  // namespace

const Family kArceeFamily = {.name = "Arcee",
                             .form = "rmsnorm, relu2, rope",
                             .model_type = "arcee",
                             .architectures = kArceeArchitectures,
                             .set_form = set_arcee_form,
                             .counterparts = llama_counterparts,
                             .config_json = arcee_json,
                             .read_config = read_arcee,
                             .ctranslate2_limits = kNoSuchFamily,
                             .mlx_lm_limits = kNoSuchFamily};

}  // namespace gpt::exchange
