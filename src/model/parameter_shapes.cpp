#include "gpt/model/parameter_shapes.h"

#include <functional>
#include <numeric>

namespace gpt {

int64_t ParameterShape::count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<ParameterShape> parameter_shapes(const ModelConfig& config) {
  const int64_t C = config.n_embd, F = config.hidden(), Vp = config.padded_vocab();
  const int64_t qkv = (config.n_head + 2 * config.kv_heads()) * config.head_dim();
  std::vector<ParameterShape> shapes;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    shapes.push_back({name + ".weight", {out, in}});
    if (config.bias) shapes.push_back({name + ".bias", {out}});
  };
  const auto norm = [&](const std::string& name) {
    shapes.push_back({name + ".weight", {C}});
    if (config.bias && config.norm == Norm::layernorm) shapes.push_back({name + ".bias", {C}});
  };

  shapes.push_back({"transformer.wte.weight", {Vp, C}});
  if (config.position == Position::learned) shapes.push_back({"transformer.wpe.weight", {config.block_size, C}});
  for (int64_t layer = 0; layer < config.n_layer; ++layer) {
    const std::string h = "transformer.h." + std::to_string(layer) + ".";
    norm(h + "ln_1");
    linear(h + "attn.c_attn", qkv, C);
    linear(h + "attn.c_proj", C, C);
    norm(h + "ln_2");
    if (config.mlp == Mlp::gelu) {
      linear(h + "mlp.c_fc", F, C);
      linear(h + "mlp.c_proj", C, F);
    } else {
      linear(h + "mlp.w1", F, C);
      linear(h + "mlp.w2", C, F);
      linear(h + "mlp.w3", F, C);
    }
  }
  norm("transformer.ln_f");
  if (!config.tie_weights) shapes.push_back({"lm_head.weight", {Vp, C}});
  return shapes;
}

std::vector<std::pair<std::string, int64_t>> parameter_groups(const ModelConfig& config) {
  std::vector<std::pair<std::string, int64_t>> groups{
      {"embedding", 0}, {"attention", 0}, {"mlp", 0}, {"norm", 0}, {"head", 0}};
  const auto group_of = [](const std::string& name) {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    return has(".attn.") ? 1 : has(".mlp.") ? 2 : has("ln_") ? 3 : has("lm_head") ? 4 : 0;
  };
  for (const auto& parameter : parameter_shapes(config)) groups[group_of(parameter.name)].second += parameter.count();
  return groups;
}

double flops_per_token(const ModelConfig& config) {
  int64_t N = 0;
  for (const auto& parameter : parameter_shapes(config)) {
    const bool looked_up = parameter.name.ends_with("wpe.weight") || (!config.tie_weights && parameter.name.ends_with("wte.weight"));
    if (!looked_up) N += parameter.count();
  }
  return 6.0 * static_cast<double>(N) + 12.0 * static_cast<double>(config.n_layer * config.n_embd * config.block_size);
}

}  // namespace gpt
