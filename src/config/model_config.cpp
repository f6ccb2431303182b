#include "gpt/config/model_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gpt/config/option.h"

namespace gpt {
namespace {

// The letter of a pattern that is repeated over the layers; of none, another than all that have a meaning.
char of_layer(const std::string& pattern, int64_t layer) {
  return pattern.empty() ? ' ' : pattern[static_cast<size_t>(layer) % pattern.size()];
}

}  // namespace

double visible_share(int64_t positions, int64_t window) {
  if (window == 0 || window >= positions) return 1;
  const auto T = static_cast<double>(positions), hidden = static_cast<double>(positions - window);  // by the last query
  return 1 - hidden * (hidden + 1) / (T * (T + 1));
}

double chosen_share(int64_t positions, int64_t block, int64_t top) {
  if (top == 0) return 1;
  const int64_t complete = positions / block, rest = positions % block, all = std::min(complete, top);
  const int64_t own = complete * block * (block + 1) / 2 + rest * (rest + 1) / 2;
  const int64_t chosen = block * (all * (all - 1) / 2 + top * (complete - all)) + rest * all;  // blocks, by all queries
  const auto T = static_cast<double>(positions);
  return static_cast<double>(own + block * chosen) / (T * (T + 1) / 2);
}

// Where heads of 64 do not divide the width, they are as near to it as they can be: the ratio decides. Their size is even, since RoPE
// rotates pairs, and their number can be shared out among the key and value heads.
int64_t ModelConfig::heads() const {
  if (n_head) return *n_head;
  if (n_head_dim) return std::max<int64_t>(1, n_embd / *n_head_dim);
  constexpr double kHeadDim = 64;
  const auto distance = [](int64_t head_dim) { return std::abs(std::log(static_cast<double>(head_dim) / kHeadDim)); };
  int64_t best = 0;
  for (int64_t head_dim = 2; head_dim <= n_embd; head_dim += 2) {
    if (n_embd % head_dim != 0 || n_embd / head_dim % n_kv_head.value_or(1) != 0) continue;
    if (best == 0 || distance(head_dim) <= distance(best)) best = head_dim;
  }
  return best > 0 ? n_embd / best : n_kv_head.value_or(1);
}

int64_t ModelConfig::hidden() const {
  if (n_hidden) return *n_hidden;
  if (!is_gated()) return 4 * n_embd;
  // Three matrices instead of two: two thirds of the width keep the parameter count.
  const int64_t width = 8 * n_embd / 3;
  return (width + 63) / 64 * 64;
}

int64_t ModelConfig::window(int64_t layer) const {
  return has_window(layer) && attention_window < block_size ? attention_window : 0;
}

bool ModelConfig::has_window(int64_t layer) const {
  const bool is_full = attention_window == 0 || (last_layer_full && layer == n_layer - 1);
  return !is_full && of_layer(window_pattern, layer) == 'S';
}

bool ModelConfig::rotates(int64_t layer) const {
  return position == Position::rope && of_layer(rope_pattern, layer) != 'N';
}

int64_t ModelConfig::top_blocks() const {
  const bool is_full = attention == AttentionForm::full || (block_size - 1) / attention_block <= attention_top_blocks;
  return is_full ? 0 : attention_top_blocks;
}

double ModelConfig::visible_share(int64_t layer) const {
  return top_blocks() > 0 ? chosen_share(block_size, attention_block, top_blocks())
                          : gpt::visible_share(block_size, window(layer));
}

int64_t ModelConfig::windowed_layers() const {
  int64_t count = 0;
  for (int64_t layer = 0; layer < n_layer; ++layer) count += window(layer) > 0 ? 1 : 0;
  return count;
}

int64_t ModelConfig::padded_vocab() const {
  return (vocab_size.value() + vocab_multiple - 1) / vocab_multiple * vocab_multiple;
}

namespace {

// As transformers computes it, and llama.cpp's converter.
double llama3_divisor(const RopeScaling& scaling, double frequency) {
  const double waves = static_cast<double>(scaling.original_length) * frequency / (2 * std::numbers::pi);
  if (waves > scaling.high) return 1;
  if (waves < scaling.low) return scaling.factor;
  const double share = (waves - scaling.low) / (scaling.high - scaling.low);
  return 1 / ((1 - share) / scaling.factor + share);
}

// As transformers and llama.cpp compute it: between two channels, rounded outwards, the share of the divided frequency grows evenly.
double yarn_divisor(const RopeScaling& scaling, double channel, double head_dim, double theta) {
  constexpr double kNoStep = 0.001;  // the least distance of the two
  const auto channel_with = [&](double waves) {
    const double length = static_cast<double>(scaling.original_length);
    return head_dim * std::log(length / (waves * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  const double first = std::max(std::floor(channel_with(scaling.beta_fast)), 0.0),
               last = std::min(std::ceil(channel_with(scaling.beta_slow)), head_dim - 1),
               share = std::clamp((channel - first) / (first == last ? kNoStep : last - first), 0.0, 1.0);
  return 1 / (share / scaling.factor + 1 - share);
}

}  // namespace

std::vector<double> RopeScaling::divisors(int64_t head_dim, double theta) const {
  const auto width = static_cast<double>(head_dim);
  std::vector<double> all;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const auto channel = static_cast<double>(i);
    switch (kind) {
      case RopeScalingKind::none: all.push_back(1); break;
      case RopeScalingKind::linear: all.push_back(factor); break;
      case RopeScalingKind::llama3: all.push_back(llama3_divisor(*this, std::pow(theta, -2 * channel / width))); break;
      case RopeScalingKind::yarn: all.push_back(yarn_divisor(*this, channel, width, theta)); break;
    }
  }
  return all;
}

double RopeScaling::magnitude() const {
  constexpr double kGrowth = 0.1;
  if (kind != RopeScalingKind::yarn) return 1;
  return attention_factor > 0 ? attention_factor : 1 + kGrowth * std::log(factor);
}

void apply_preset(ModelConfig& config) {
  const auto shape = [&](int64_t n_layer, int64_t n_embd, int64_t block_size) {  // heads are 64 wide
    config.n_layer = n_layer;
    config.n_head.reset();
    config.n_kv_head.reset();
    config.n_embd = n_embd;
    config.n_head_dim.reset();
    config.n_hidden.reset();
    config.block_size = block_size;
  };
  switch (config.preset) {
    case Preset::automatic:
    case Preset::none: return;
    case Preset::char_small: return shape(6, 384, 256);
    case Preset::gpt2_small: shape(12, 768, 1024); break;
    case Preset::gpt2_medium: shape(24, 1024, 1024); break;
    case Preset::gpt2_large: shape(36, 1280, 1024); break;
    case Preset::gpt2_xl: shape(48, 1600, 1024); break;
  }
  config.norm = Norm::layernorm;
  config.norm_eps = 1e-5;
  config.mlp = Mlp::gelu;
  config.position = Position::learned;
  config.bias = true;
  config.tie_weights = true;
}

namespace config {

std::vector<std::string> keys_of_preset(std::string_view name) {
  std::vector<std::string> keys = {"model.n_layer",  "model.n_head",   "model.n_kv_head", "model.n_embd",
                                   "model.head_dim", "model.n_hidden", "model.block_size"};
  if (name.starts_with("gpt2"))
    for (const char* key : {"norm", "norm_eps", "mlp", "position", "bias", "tie_weights"})
      keys.push_back(std::string("model.") + key);
  return keys;
}

std::vector<Option> options(ModelConfig& c) {
  std::vector<Option> rows = {
      {.name = "preset",
       .target = choice(c.preset, {{"auto", Preset::automatic},
                                   {"none", Preset::none},
                                   {"gpt2_small", Preset::gpt2_small},
                                   {"gpt2_medium", Preset::gpt2_medium},
                                   {"gpt2_large", Preset::gpt2_large},
                                   {"gpt2_xl", Preset::gpt2_xl},
                                   {"char_small", Preset::char_small}}),
       .help =
           "sizes to start from (gpt2_*: also GPT-2's exact architecture); auto = chosen for this machine and text, unless a "
           "size is set; keys that are set take precedence",
       .aliases = {{"model_size"}},
       .safe_on_resume = true},  // only a label once a run has started: the keys it stands for are compared
      {.name = "n_layer",
       .target = &c.n_layer,
       .help = "number of transformer blocks",
       .min = 1,
       .max = 1024,
       .aliases = {{"n_layers"}, {"num_layers"}, {"nlayers"}, {"layers"}, {"num_hidden_layers"}}},
      {.name = "n_head",
       .target = &c.n_head,
       .help =
           "number of attention heads, which must divide n_embd unless head_dim is set; auto = heads 64 wide, or as near to "
           "that as divides n_embd",
       .min = 1,
       .max = 1024,
       .aliases = {{"n_heads"}, {"num_heads"}, {"nhead"}, {"heads"}, {"num_attention_heads"}}},
      {.name = "n_kv_head",
       .target = &c.n_kv_head,
       .help = "number of key and value heads; auto = n_head, fewer = grouped-query attention",
       .min = 1,
       .max = 1024,
       .aliases = {{"n_kv_heads"}, {"num_key_value_heads"}},
       .tried = {"auto", "1"}},
      {.name = "n_embd",
       .target = &c.n_embd,
       .help = "width of the embeddings and the residual stream",
       .min = 1,
       .max = 65536,
       .aliases = {{"d_model"}, {"hidden_size"}}},
      {.name = "head_dim",
       .target = &c.n_head_dim,
       .help = "width of an attention head; auto = n_embd / n_head",
       .min = 1,
       .max = 65536,
       .tried = {"auto", "32"}},
      {.name = "n_hidden",
       .target = &c.n_hidden,
       .help =
           "width of the MLP's hidden layer; auto = 4 n_embd, or 8/3 n_embd rounded up to a multiple of 64 if it is gated",
       .min = 1,
       .max = 1e6,
       .aliases = {{"d_hid"}, {"d_ff"}, {"intermediate_size"}, {"n_inner"}}},
      {.name = "block_size",
       .target = &c.block_size,
       .help = "context length in tokens",
       .min = 1,
       .max = 1e6,
       .aliases = {{"seq_length"},
                   {"seq_len"},
                   {"max_seq_length"},
                   {"context_length"},
                   {"context"},
                   {"ctx_len"},
                   {"max_position_embeddings"},
                   {"n_positions"}}},
      {.name = "vocab_size",
       .target = &c.vocab_size,
       .help = "size of the vocabulary; auto = the tokenizer's",
       .min = 1,
       .max = 1e8},
      {.name = "vocab_multiple",
       .target = &c.vocab_multiple,
       .help = "the number of embedding rows is rounded up to a multiple of this",
       .min = 1,
       .max = 65536,
       .tried = {"64", "1"}},
      {.name = "norm",
       .target = choice(c.norm, {{"layernorm", Norm::layernorm}, {"rmsnorm", Norm::rmsnorm}}),
       .help = "normalization before attention and MLP"},
      {.name = "norm_place",
       .target = choice(c.norm_place,
                        {{"input", NormPlace::input}, {"output", NormPlace::output}, {"both", NormPlace::both}}),
       .help =
           "what of attention and of the MLP is normalized: input = what goes in (pre-norm), output = what comes out, before it "
           "is added (OLMo 2), both = each with a norm of its own (Gemma 3)"},
      {.name = "norm_unit_offset",
       .target = &c.norm_unit_offset,
       .help = "the weight of a norm, head norms included, is added to 1 and begins at 0, as Gemma has it"},
      {.name = "mlp",
       .target =
           choice(c.mlp, {{"swiglu", Mlp::swiglu}, {"geglu", Mlp::geglu}, {"gelu", Mlp::gelu}, {"relu2", Mlp::relu2}}),
       .help =
           "activation of the MLP; swiglu and geglu are gated, gelu is GPT-2's (tanh approximation), relu2 is the square of ReLU"},
      {.name = "position",
       .target = choice(c.position, {{"learned", Position::learned}, {"rope", Position::rope}}),
       .help = "position encoding: learned embeddings, or rotary ones (RoPE)"},
      {.name = "rope_theta", .target = &c.rope_theta, .help = "base of RoPE's frequencies", .min = 1, .max = 1e9},
      {.name = "rope_window_theta",
       .target = &c.rope_window_theta,
       .help =
           "base of RoPE's frequencies in windowed layers, where rope_scaling does not count then, as Gemma 3 has it (10000); "
           "0 = as in all layers",
       .min = 0,
       .max = 1e9,
       .aliases = {{"rope_local_base_freq"}}},
      {.name = "rope_pattern",
       .target = &c.rope_pattern,
       .help =
           "which layers rotate queries and keys, repeated over them: R = rotated, N = not (NoPE); SmolLM3 has RRRN"},
      {.name = "rope_scaling",
       .target = choice(c.rope_scaling.kind, {{"none", RopeScalingKind::none},
                                              {"linear", RopeScalingKind::linear},
                                              {"llama3", RopeScalingKind::llama3},
                                              {"yarn", RopeScalingKind::yarn}}),
       .help =
           "lower frequencies of RoPE, for sequences longer than those that a model was first trained on; linear = all divided by "
           "rope_scaling_factor; llama3 = the low ones alone, as Llama 3.1 does; yarn = the same by channels, with larger queries and "
           "keys, as OLMo 3 does"},
      {.name = "rope_scaling_factor",
       .target = &c.rope_scaling.factor,
       .help = "what frequencies are divided by",
       .min = 1,
       .max = 1e6},
      {.name = "rope_low_freq_factor",
       .target = &c.rope_scaling.low,
       .help = "llama3: frequencies with fewer waves in rope_original_length are divided by the factor",
       .min = 0.001,
       .max = 1e6},
      {.name = "rope_high_freq_factor",
       .target = &c.rope_scaling.high,
       .help = "llama3: frequencies with more waves in rope_original_length stay",
       .min = 0.001,
       .max = 1e6},
      {.name = "rope_original_length",
       .target = &c.rope_scaling.original_length,
       .help = "llama3 and yarn: tokens of the sequences that the model was first trained on",
       .min = 1,
       .max = 1e9},
      {.name = "rope_beta_slow",
       .target = &c.rope_scaling.beta_slow,
       .help = "yarn: frequencies with fewer waves in rope_original_length are divided by the factor",
       .min = 0.001,
       .max = 1e6},
      {.name = "rope_beta_fast",
       .target = &c.rope_scaling.beta_fast,
       .help = "yarn: frequencies with more waves in rope_original_length stay",
       .min = 0.001,
       .max = 1e6},
      {.name = "rope_attention_factor",
       .target = &c.rope_scaling.attention_factor,
       .help = "yarn: what queries and keys are multiplied by; 0 = 1 + 0.1 log(rope_scaling_factor)",
       .min = 0,
       .max = 1e6},
      {.name = "attention",
       .target = choice(c.attention, {{"full", AttentionForm::full}, {"blocks", AttentionForm::blocks}}),
       .help =
           "what a token sees: full = everything before it; blocks = its own block of positions and the earlier ones that are most "
           "important to it, by the product of its query with the mean of their keys (MoBA, on a CPU)",
       .otherwise = "for the kernel, set training.attention",
       .is_shadowed = true},  // by training.attention, which had the name first
      {.name = "attention_block",
       .target = &c.attention_block,
       .help = "positions of a block of attention: blocks, a multiple of 64",
       .min = 64,
       .max = 65536},
      {.name = "attention_top_blocks",
       .target = &c.attention_top_blocks,
       .help = "earlier blocks that each query of each head chooses with attention: blocks",
       .min = 1,
       .max = 256},
      {.name = "attention_window",
       .target = &c.attention_window,
       .help =
           "positions that a token sees in a windowed layer, its own among them (sliding window); 0 = all layers see everything before",
       .min = 0,
       .max = 1e6,
       .tried = {"0", "64"}},
      {.name = "window_pattern",
       .target = &c.window_pattern,
       .help = "which layers attention_window is for, repeated over them: S = windowed, L = full; see last_layer_full"},
      {.name = "last_layer_full",
       .target = &c.last_layer_full,
       .help = "whether the last layer sees everything before, whatever window_pattern has for it"},
      {.name = "norm_eps",
       .target = &c.norm_eps,
       .help = "epsilon of the normalization, for numerical stability",
       .min = 1e-12,
       .max = 0.1,
       .aliases = {{"layer_norm_epsilon"}, {"rms_norm_eps"}}},
      {.name = "bias", .target = &c.bias, .help = "use biases in linear layers and LayerNorm"},
      {.name = "qkv_bias",
       .target = &c.qkv_bias,
       .help = "use a bias for queries, keys and values alone, as Qwen2 does; bias has it too"},
      {.name = "qk_norm",
       .target = choice(c.qk_norm, {{"none", QkNorm::none}, {"heads", QkNorm::heads}, {"all", QkNorm::all}}),
       .help =
           "normalize queries and keys before they are rotated: heads = each head by itself, as Qwen3 does; all = all heads of a "
           "token together, as OLMo 2 does",
       .aliases = {{"use_qk_norm"}},
       .if_true = "heads",
       .if_false = "none"},
      {.name = "dropout",
       .target = &c.dropout,
       .help = "fraction of activations set to zero during training, with init_from 0 unless set",
       .min = 0,
       .max = 0.9,
       .aliases = {{"dropout_rate"}, {"dropout_prob"}},
       .safe_on_resume = true,
       .tried = {"0", "0.1"}},
      {.name = "tie_weights",
       .target = &c.tie_weights,
       .help = "share one matrix between the token embedding and the output layer",
       .aliases = {{"tie_word_embeddings"}}},
      {.name = "scaled_embedding",
       .target = &c.scaled_embedding,
       .help = "multiply what the first block is given by the square root of n_embd, as Gemma does"},
  };
  for (Option& row : rows) row.section = "model";
  return rows;
}

}  // namespace config
}  // namespace gpt
