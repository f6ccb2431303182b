#include "gpt/exchange/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/layout/parameter_table.h"

namespace gpt::exchange {
namespace {

using Role = ParameterRole;

// What of a form a family does not have: "model.mlp geglu (Llama has swiglu)".
std::vector<std::string> differences(const ModelConfig& model, Family family) {
  ModelConfig own = model, theirs = model;
  own.n_kv_head = model.kv_heads();  // auto and the number that it stands for are the same
  own.n_head_dim = theirs.n_head_dim = model.head_dim();
  if (family == Family::gpt2) {
    theirs.norm = Norm::layernorm, theirs.mlp = Mlp::gelu, theirs.position = Position::learned;
    theirs.n_kv_head = model.heads();
    theirs.n_head_dim = model.n_embd / model.heads();
  } else {
    theirs.norm = Norm::rmsnorm, theirs.mlp = Mlp::swiglu, theirs.position = Position::rope;
    theirs.n_kv_head = model.kv_heads();
  }
  if (model.windowed_layers() > 0) {
    theirs.attention_window = 0;
  } else {
    own.attention_window = theirs.attention_window = 0;  // one as long as the sequences, or for no layer
  }
  if (model.top_blocks() > 0) {
    theirs.attention = AttentionForm::full;
  } else {
    own.attention = theirs.attention = AttentionForm::full;  // of which every query sees all
  }
  own.attention_block = theirs.attention_block, own.attention_top_blocks = theirs.attention_top_blocks;
  std::vector<std::string> found;
  const std::vector<config::Option> rows = config::options(own), wanted = config::options(theirs);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string value = config::value_text(rows[i].target), other = config::value_text(wanted[i].target);
    if (value != other) found.push_back(fmt::format("{} {} ({} has {})", rows[i].key(), value, name_of(family), other));
  }
  return found;
}

// The name without ".weight" and ".bias"; that of attention_in, which is three tensors there, is the part that they share.
std::string llama_name(const ParameterRow& row) {
  const std::string layer = fmt::format("model.layers.{}.", row.layer);
  switch (row.role) {
    case Role::token_embedding: return "model.embed_tokens";
    case Role::attention_norm: return layer + "input_layernorm";
    case Role::attention_in: return layer + "self_attn.";
    case Role::attention_out: return layer + "self_attn.o_proj";
    case Role::mlp_norm: return layer + "post_attention_layernorm";
    case Role::mlp_gate: return layer + "mlp.gate_proj";
    case Role::mlp_in: return layer + "mlp.up_proj";
    case Role::mlp_out: return layer + "mlp.down_proj";
    case Role::final_norm: return "model.norm";
    case Role::head: return "lm_head";
    case Role::position_embedding: break;
  }
  throw std::logic_error("Llama has no " + row.name);
}

bool has_vocabulary(Role role) { return role == Role::token_embedding || role == Role::head; }
bool is_linear(Role role) {
  return role == Role::attention_in || role == Role::attention_out || role == Role::mlp_gate || role == Role::mlp_in ||
         role == Role::mlp_out;
}

Counterpart part_of(const ParameterRow& row, std::string name, int64_t begin, int64_t size) {
  Counterpart part{std::move(name), row.name, begin, size, /*is_transposed=*/false, /*is_zero=*/false, row.shape};
  part.shape[0] = size;
  return part;
}

std::vector<Counterpart> gpt2_counterparts(const ModelConfig& model) {
  const std::vector<ParameterRow> own = parameter_table(model);
  ModelConfig with_biases = model;
  with_biases.bias = true;
  std::vector<Counterpart> parts;
  for (const ParameterRow& row : parameter_table(with_biases)) {
    // Our names are GPT-2's own.
    Counterpart part = part_of(row, row.name, 0, has_vocabulary(row.role) ? *model.vocab_size : row.shape[0]);
    part.is_transposed = is_linear(row.role) && !row.is_bias;
    if (part.is_transposed) std::reverse(part.shape.begin(), part.shape.end());
    part.is_zero = std::none_of(own.begin(), own.end(), [&](const ParameterRow& o) { return o.name == row.name; });
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<Counterpart> llama_counterparts(const ModelConfig& model) {
  const int64_t queries = model.attention_width(), keys = model.kv_heads() * model.head_dim();
  std::vector<Counterpart> parts;
  for (const ParameterRow& row : parameter_table(model)) {
    const std::string name = llama_name(row), ending = row.is_bias ? ".bias" : ".weight";
    if (row.role == Role::attention_in) {
      parts.push_back(part_of(row, name + "q_proj" + ending, 0, queries));
      parts.push_back(part_of(row, name + "k_proj" + ending, queries, keys));
      parts.push_back(part_of(row, name + "v_proj" + ending, queries + keys, keys));
    } else {
      parts.push_back(part_of(row, name + ending, 0, has_vocabulary(row.role) ? *model.vocab_size : row.shape[0]));
    }
  }
  return parts;
}

}  // namespace

std::string_view name_of(Family family) { return family == Family::gpt2 ? "GPT-2" : "Llama"; }

std::string misfits(const ModelConfig& model) {
  const std::vector<std::string> gpt2 = differences(model, Family::gpt2), llama = differences(model, Family::llama);
  return fmt::format("{}", fmt::join(gpt2.size() < llama.size() ? gpt2 : llama, ", "));
}

std::string heads_that_do_not_divide(const ModelConfig& model) {
  if (model.n_embd % model.heads() == 0) return "";
  return fmt::format("model.n_head {} does not divide model.n_embd {}", model.heads(), model.n_embd);
}

std::string export_limits(const ModelConfig& model) {
  if (const std::string misfit = misfits(model); !misfit.empty())
    return fmt::format(
        "gpt-export will not write this model for transformers or llama.cpp, which have no such form: {}; it will with "
        "--format quantized, for the programs here",
        misfit);
  const std::string why = heads_that_do_not_divide(model);
  return why.empty() ? ""
                     : fmt::format("gpt-export will write this model for llama.cpp, but not for transformers: {}", why);
}

Family family_of(const ModelConfig& model, const std::string& origin, std::string_view program) {
  const std::string misfit = misfits(model);
  if (misfit.empty()) return differences(model, Family::gpt2).empty() ? Family::gpt2 : Family::llama;
  throw Error(
      ExitCode::checkpoint,
      fmt::format(
          "{}: {} has no model of this form: {}; it takes GPT-2's form (layernorm, gelu, learned positions) and "
          "Llama's (rmsnorm, swiglu, rope)",
          origin, program, misfit));
}

std::vector<Counterpart> counterparts(const ModelConfig& model, Family family) {
  std::vector<Counterpart> parts = family == Family::gpt2 ? gpt2_counterparts(model) : llama_counterparts(model);
  std::sort(parts.begin(), parts.end(), [](const Counterpart& a, const Counterpart& b) { return a.name < b.name; });
  return parts;
}

}  // namespace gpt::exchange
