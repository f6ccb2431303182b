// Which parameters a configuration has and what each of them is: one row per tensor, made without LibTorch, so that a model
// and its cost can be described before anything is allocated. Initialization, wiring, weight decay, counts, checkpoints and
// memory estimates read these rows instead of names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/config/tuning_config.h"
#include "gpt/layout/alignment.h"

namespace gpt::layout {

// In the order in which a forward pass meets them within a layer.
enum class ParameterRole {
  token_embedding,
  position_embedding,
  attention_norm,
  attention_in,  // query, key and value
  query_norm,    // of each head, or of all
  key_norm,
  attention_out,
  attention_out_norm,  // of what attention adds
  mlp_norm,
  mlp_gate,
  mlp_in,
  mlp_out,
  mlp_out_norm,
  final_norm,
  head,
};

// Whether it is of a normalization.
constexpr bool is_norm(ParameterRole role) {
  using enum ParameterRole;
  return role == attention_norm || role == query_norm || role == key_norm || role == attention_out_norm ||
         role == mlp_norm || role == mlp_out_norm || role == final_norm;
}

struct InitialValue {
  double constant = 0;
  double normal_std = 0;     // > 0: drawn from a normal distribution around 0 instead,
  int64_t padding_rows = 0;  // except for so many last rows, which stay constant and take no random numbers
};

// The stretches of one dimension of a whole tensor, of shape `whole`, that a row consists of, one behind the other.
struct RowCut {
  struct Piece {
    int64_t begin, length;
  };
  std::vector<int64_t> whole;
  size_t dim = 0;
  std::vector<Piece> pieces;
};

// One of two factors of what is added to a product with a frozen weight (LoRA): scale * (x A^T) B^T, for each of `outputs` apart.
struct AdapterPart {
  bool is_a = true;  // (rank for each of `outputs`, inputs); otherwise B: (all outputs, rank)
  double scale = 1, dropout = 0;
  std::vector<RowCut::Piece> outputs = {};  // which of the product's, one behind the other in B
};

struct ParameterRow {
  std::string name;  // as in nanoGPT's state dict: transformer.h.0.attn.c_attn.weight
  std::vector<int64_t> shape;
  ParameterRole role;
  int64_t layer;  // -1 before the first one, n_layer after the last
  bool is_bias;
  InitialValue initial;
  std::string tied_name = {};  // the second name under which a state dict lists it: a tied head
  bool is_trained = true;      // false: it has no gradient and stays as it is
  // How many rows of attention_in's weight make the queries. They come first; those of keys and values follow.
  int64_t query_rows = 0;
  // Where tensor parallelism divides the parameter (layout/cut.h): `shape` is that of a process's part. `initial` is of the whole one.
  std::optional<RowCut> cut = {};
  // The factor of an adapter that this row is; its role and layer are those of the weight that the adapter goes with.
  std::optional<AdapterPart> adapter = {};
  // The few bits in which a matrix that is not trained is kept, apart from the flat buffer; automatic: it lies in the buffer.
  BaseType kept = BaseType::automatic;
  bool is_narrow() const { return kept != BaseType::automatic; }
  int64_t count() const;
  const std::vector<int64_t>& whole_shape() const { return cut ? cut->whole : shape; }
  int64_t whole_count() const;
  bool decays() const { return shape.size() >= 2; }  // weight decay: matrices only
};

// In state-dict order, which is the order of random drawing and of checkpoints. `config.vocab_size` must be set. All are trained;
// layout/tuning.h has the table of a run in which some are not.
std::vector<ParameterRow> parameter_table(const ModelConfig& config);

// A matrix that may have few bits: what activations are multiplied by, and the table of token embeddings.
bool is_product_matrix(const ParameterRow& row);
// Whether it has a row for each token, as the table or a head of its own. Where others have 4 bits, these have 8.
bool is_vocabulary(ParameterRole role);

// Which row is the table that is also the head; nothing where the head is another or not among them.
std::optional<size_t> tied_row(const std::vector<ParameterRow>& rows);

// The layer at which a backward pass ends, because nothing before it is trained: -1 for the embeddings, n_layer for what follows the
// blocks.
int64_t first_trained_layer(const std::vector<ParameterRow>& rows);

// Where each parameter lies in a flat buffer, in elements: in the order in which a backward pass completes the gradients, each
// beginning at a multiple of kParameterAlignment; behind them those that are not trained, but for those that are kept apart.
struct FlatLayout {
  std::vector<int64_t>
      offsets;               // one for each row, in the order of the table; of one that is kept apart it means nothing
  int64_t size = 0;          // with the padding
  int64_t trained_size = 0;  // of those that are trained, which is as far as gradients and the optimizer's state go
};
FlatLayout flat_layout(const std::vector<ParameterRow>& rows);
// Indices of the rows in the order in which they lie in the buffer.
std::vector<size_t> flat_order(const std::vector<ParameterRow>& rows);

// [begin, end) of the flat buffer, multiples of kParameterAlignment.
struct FlatSpan {
  int64_t begin, end;
  bool operator==(const FlatSpan&) const = default;
};

// Stretches [begin, end) of the flat buffer whose parameters are trained and all decay, or all do not. Padding between parameters of one
// stretch is part of it.
struct FlatRange {
  int64_t begin, end;
  bool decays;
};
std::vector<FlatRange> decay_ranges(const std::vector<ParameterRow>& rows, const FlatLayout& layout);

int64_t parameter_count(const std::vector<ParameterRow>& rows);
int64_t trained_count(const std::vector<ParameterRow>& rows);
int64_t parameter_count(const ModelConfig& config);

// Number of values in "embedding", "attention", "mlp", "norm" and "head" (0 when tied), in that order.
std::vector<std::pair<std::string, int64_t>> parameter_groups(const ModelConfig& config);

// Floating-point operations of forward and backward per token, PaLM's rule: 6 N + 12 L H D T (N includes the tied embedding
// but neither learned positions nor an embedding that is only looked up), less what frozen parameters save of the backward pass, and of
// attention what windows hide. Of the whole model, also where the rows are cut.
double flops_per_token(const ModelConfig& config, const std::vector<ParameterRow>& rows);
double flops_per_token(const ModelConfig& config);

}  // namespace gpt::layout
