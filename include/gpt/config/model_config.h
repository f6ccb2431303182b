// The shape of the model, as plain data. Vocabulary is GPT-2's; counts start with n_.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

enum class Norm { layernorm, rmsnorm };
enum class NormPlace { input, output, both };   // of attention and of the MLP
enum class QkNorm { none, heads, all };         // over the values of each head, or of all heads of a token
enum class Mlp { swiglu, geglu, gelu, relu2 };  // gelu is the tanh form, relu2 the square of ReLU
enum class Position { learned, rope };
enum class RopeScalingKind { none, linear, llama3, yarn };
enum class AttentionForm { full, blocks };
enum class Preset { automatic, none, gpt2_small, gpt2_medium, gpt2_large, gpt2_xl, char_small };

constexpr bool is_gated(Mlp kind) {  // one product opens what another one gives
  return kind == Mlp::swiglu || kind == Mlp::geglu;
}

// The share of the scores of causal attention over so many positions that is within a layer's window; window 0: all.
double visible_share(int64_t positions, int64_t window);
// The same where a query sees its own block of so many positions and the `top` earlier ones that it chooses; 0: all.
double chosen_share(int64_t positions, int64_t block, int64_t top);

// How RoPE's frequencies are lowered for texts that are longer than those that a model was first trained on.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;  // linear: all are divided by the factor
  double factor = 8;
  // llama3: a frequency is divided where fewer than `low` of its waves fit into the original length, stays where more than `high` do, and lies
  // between the two otherwise.
  double low = 1, high = 4;
  // yarn: the same by the channels in which so many waves fit in, and queries and keys are multiplied by attention_factor; 0: by
  // 1 + 0.1 log(factor), as the paper has it (Peng et al., 2023).
  double beta_slow = 1, beta_fast = 32;
  double attention_factor = 0;
  int64_t original_length = 8192;

  // (head_dim / 2): what the frequencies theta^(-2i / head_dim), in radians a position, are divided by.
  std::vector<double> divisors(int64_t head_dim, double theta) const;
  double magnitude() const;  // what rotated queries and keys are multiplied by
  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  // Sizes (and for gpt2_*: GPT-2's exact form) as defaults; keys written out take precedence. automatic: see automatic.h.
  Preset preset = Preset::automatic;
  int64_t n_layer = 6;
  std::optional<int64_t> n_head;     // auto: heads 64 wide, see heads()
  std::optional<int64_t> n_kv_head;  // auto: n_head; fewer is grouped-query attention
  int64_t n_embd = 384;
  std::optional<int64_t> n_head_dim;  // the key head_dim; auto: n_embd / n_head
  std::optional<int64_t> n_hidden;    // auto: 4 n_embd; gated: 8/3 n_embd rounded up to a multiple of 64
  int64_t block_size = 256;
  std::optional<int64_t> vocab_size;  // auto: the tokenizer's
  int64_t vocab_multiple = 64;        // embedding rows are padded to a multiple of this
  Norm norm = Norm::rmsnorm;
  Mlp mlp = Mlp::swiglu;
  Position position = Position::rope;
  double rope_theta = 10000.0;
  double rope_window_theta = 0;  // of windowed layers, whose frequencies are then not scaled; 0: as all layers
  RopeScaling rope_scaling;
  std::string rope_pattern = "R";  // repeated over the layers: R rotates queries and keys, N does not
  // blocks: a query sees its own block of attention_block positions and the attention_top_blocks earlier ones that it chooses.
  AttentionForm attention = AttentionForm::full;
  int64_t attention_block = 64;
  int64_t attention_top_blocks = 4;
  // Positions that a query of a windowed layer sees, its own among them; 0: there are no windows.
  int64_t attention_window = 0;
  std::string window_pattern = "SSSL";  // repeated over the layers: S windowed, L full
  bool last_layer_full = true;          // whatever the pattern has for it
  NormPlace norm_place = NormPlace::input;
  bool norm_unit_offset = false;  // the weight of a norm is how far its factor is from 1
  double norm_eps = 1e-5;
  bool bias = false;              // in all linear layers and LayerNorm
  bool qkv_bias = false;          // of queries, keys and values alone
  QkNorm qk_norm = QkNorm::none;  // of queries and keys, before they are rotated
  double dropout = 0.1;
  bool tie_weights = true;
  bool scaled_embedding = false;  // what the blocks are given is sqrt(n_embd) times the embedding

  int64_t heads() const;  // n_head, or what auto means
  int64_t head_dim() const { return n_head_dim.value_or(n_embd / heads()); }
  int64_t attention_width() const { return heads() * head_dim(); }  // of all queries; n_embd, unless head_dim is set
  int64_t kv_heads() const { return n_kv_head.value_or(heads()); }
  int64_t hidden() const;  // n_hidden, or what auto means
  bool is_gated() const { return gpt::is_gated(mlp); }
  // Positions that a query of this layer sees; 0: all up to its own, as in a model whose sequences are no longer than the window.
  int64_t window(int64_t layer) const;
  int64_t windowed_layers() const;
  bool has_window(int64_t layer) const;  // by the pattern, even where sequences are no longer than it
  bool rotates(int64_t layer) const;     // queries and keys of this layer
  // Blocks that a query chooses; 0: it sees all, as in a model whose sequences have no more of them.
  int64_t top_blocks() const;
  // The share of the scores of full causal attention over a whole sequence that this layer computes.
  double visible_share(int64_t layer) const;
  int64_t padded_vocab() const;  // vocab_size (which must be set) rounded up to vocab_multiple
};

// Sets what config.preset stands for, over what config held. automatic and none change nothing.
void apply_preset(ModelConfig& config);

namespace config {
struct Option;
std::vector<Option> options(ModelConfig& config);                // a row for each key
std::vector<std::string> keys_of_preset(std::string_view name);  // that apply_preset() sets
}  // namespace config

}  // namespace gpt
