#include "gpt/layout/parameter_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "gpt/config/block_form.h"

namespace gpt::layout {
namespace {

using Role = ParameterRole;

constexpr double kStd = 0.02;

class TableBuilder {
 public:
  explicit TableBuilder(const ModelConfig& config) : config_(config) {}

  void embedding(const std::string& name, Role role, int64_t rows, int64_t padding_rows) {
    add(name, {rows, config_.n_embd}, role, {.normal_std = kStd, .padding_rows = padding_rows});
  }

  void linear(const std::string& name, Role role, int64_t out, int64_t in, bool has_bias) {
    // GPT-2's rule: what is added to the residual stream is scaled down by the number of additions.
    const bool is_residual = role == Role::attention_out || role == Role::mlp_out;
    const double std = is_residual ? kStd / std::sqrt(2.0 * static_cast<double>(config_.n_layer)) : kStd;
    add(name + ".weight", {out, in}, role, {.normal_std = std});
    if (has_bias) add_bias(name, out, role);
  }

  void norm(const std::string& name, Role role, const NormForm& form) { norm(name, role, form, config_.n_embd); }

  void norm(const std::string& name, Role role, const NormForm& form, int64_t width) {
    add(name + ".weight", {width}, role, {.constant = form.has_unit_offset ? 0.0 : 1.0});
    if (form.has_bias) add_bias(name, width, role);
  }

  void attention(const std::string& name, const BlockForm& form) {
    const int64_t queries = config_.attention_width(), keys = config_.kv_heads() * config_.head_dim();
    const size_t weight = rows.size();
    linear(name + "c_attn", Role::attention_in, queries + 2 * keys, config_.n_embd, form.attention_in_bias);
    rows[weight].query_rows = queries;
    if (form.head_norm) {
      norm(name + "q_norm", Role::query_norm, *form.head_norm, config_.head_dim());
      norm(name + "k_norm", Role::key_norm, *form.head_norm, config_.head_dim());
    }
    if (form.heads_norm) {
      norm(name + "q_norm", Role::query_norm, *form.heads_norm, queries);
      norm(name + "k_norm", Role::key_norm, *form.heads_norm, keys);
    }
    linear(name + "c_proj", Role::attention_out, config_.n_embd, queries, form.attention_out_bias);
    if (form.out_norm) norm(name + "out_norm", Role::attention_out_norm, *form.out_norm);
  }

  // As nanoGPT names them, and gated ones as Llama's own code does.
  void mlp(const std::string& name, const MlpForm& form, const std::optional<NormForm>& out_norm) {
    const int64_t C = config_.n_embd, F = form.width;
    if (is_gated(form.kind)) {
      linear(name + "w1", Role::mlp_gate, F, C, form.has_bias);
      linear(name + "w2", Role::mlp_out, C, F, form.has_bias);
      linear(name + "w3", Role::mlp_in, F, C, form.has_bias);
    } else {
      linear(name + "c_fc", Role::mlp_in, F, C, form.has_bias);
      linear(name + "c_proj", Role::mlp_out, C, F, form.has_bias);
    }
    if (out_norm) norm(name + "out_norm", Role::mlp_out_norm, *out_norm);
  }

  int64_t layer = -1;  // the layer of the rows to come
  std::vector<ParameterRow> rows;

 private:
  void add(const std::string& name, std::vector<int64_t> shape, Role role, const InitialValue& initial) {
    rows.push_back(
        {.name = name, .shape = std::move(shape), .role = role, .layer = layer, .is_bias = false, .initial = initial});
  }

  void add_bias(const std::string& name, int64_t size, Role role) {
    add(name + ".bias", {size}, role, {});
    rows.back().is_bias = true;
  }

  const ModelConfig& config_;
};

// The index of the group in parameter_groups().
size_t group_of(Role role) {
  switch (role) {
    case Role::token_embedding:
    case Role::position_embedding: return 0;
    case Role::attention_in:
    case Role::attention_out: return 1;
    case Role::mlp_gate:
    case Role::mlp_in:
    case Role::mlp_out: return 2;
    case Role::attention_norm:
    case Role::query_norm:
    case Role::key_norm:
    case Role::attention_out_norm:
    case Role::mlp_norm:
    case Role::mlp_out_norm:
    case Role::final_norm: return 3;
    case Role::head: break;
  }
  return 4;
}

int64_t product_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t ParameterRow::count() const { return product_of(shape); }

int64_t ParameterRow::whole_count() const { return product_of(whole_shape()); }

std::vector<ParameterRow> parameter_table(const ModelConfig& config) {
  const int64_t Vp = config.padded_vocab(), padding = Vp - *config.vocab_size;
  TableBuilder table(config);
  table.embedding("transformer.wte.weight", Role::token_embedding, Vp, padding);
  if (config.tie_weights) table.rows.back().tied_name = "lm_head.weight";
  if (config.position == Position::learned) {
    table.embedding("transformer.wpe.weight", Role::position_embedding, config.block_size, 0);
  }
  for (table.layer = 0; table.layer < config.n_layer; ++table.layer) {
    const std::string h = "transformer.h." + std::to_string(table.layer) + ".";
    const BlockForm form = block_form(config, table.layer);
    if (form.norm) table.norm(h + "ln_1", Role::attention_norm, *form.norm);
    table.attention(h + "attn.", form);
    if (form.norm) table.norm(h + "ln_2", Role::mlp_norm, *form.norm);
    table.mlp(h + "mlp.", form.mlp, form.out_norm);
  }
  table.norm("transformer.ln_f", Role::final_norm, final_norm_form(config));
  if (!config.tie_weights) table.embedding("lm_head.weight", Role::head, Vp, padding);
  return std::move(table.rows);
}

std::optional<size_t> tied_row(const std::vector<ParameterRow>& rows) {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [](const ParameterRow& one) { return !one.tied_name.empty(); });
  if (row == rows.end()) return std::nullopt;
  return static_cast<size_t>(row - rows.begin());
}

int64_t first_trained_layer(const std::vector<ParameterRow>& rows) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const ParameterRow& row : rows)
    if (row.is_trained) first = std::min(first, row.layer);
  return first;
}

// As a backward pass completes their gradients.
std::vector<size_t> flat_order(const std::vector<ParameterRow>& rows) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) { return std::tuple(rows[i].is_trained, rows[i].layer, rows[i].role); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) > place(b); });
  return order;
}

bool is_product_matrix(const ParameterRow& row) {
  return row.shape.size() == 2 && row.role != Role::position_embedding && !row.adapter;
}

bool is_vocabulary(ParameterRole role) { return role == Role::token_embedding || role == Role::head; }

FlatLayout flat_layout(const std::vector<ParameterRow>& rows) {
  FlatLayout layout{.offsets = std::vector<int64_t>(rows.size())};
  for (const size_t i : flat_order(rows)) {
    layout.offsets[i] = layout.size;
    if (rows[i].is_narrow()) continue;
    layout.size = aligned_end(layout.size + rows[i].count());
    if (rows[i].is_trained) layout.trained_size = layout.size;
  }
  return layout;
}

std::vector<FlatRange> decay_ranges(const std::vector<ParameterRow>& rows, const FlatLayout& layout) {
  std::vector<FlatRange> ranges;
  for (const size_t i : flat_order(rows)) {
    if (!rows[i].is_trained) break;
    const int64_t begin = layout.offsets[i], end = begin + rows[i].count();
    if (ranges.empty() || ranges.back().decays != rows[i].decays()) {
      ranges.push_back({begin, end, rows[i].decays()});
    } else {
      ranges.back().end = end;
    }
  }
  return ranges;
}

int64_t parameter_count(const std::vector<ParameterRow>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0},
                         [](int64_t count, const ParameterRow& row) { return count + row.count(); });
}

int64_t trained_count(const std::vector<ParameterRow>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0}, [](int64_t count, const ParameterRow& row) {
    return count + (row.is_trained ? row.count() : 0);
  });
}

int64_t parameter_count(const ModelConfig& config) { return parameter_count(parameter_table(config)); }

std::vector<std::pair<std::string, int64_t>> parameter_groups(const ModelConfig& config) {
  std::vector<std::pair<std::string, int64_t>> groups{
      {"embedding", 0}, {"attention", 0}, {"mlp", 0}, {"norm", 0}, {"head", 0}};
  for (const ParameterRow& row : parameter_table(config)) groups[group_of(row.role)].second += row.count();
  return groups;
}

// A multiplication and an addition with each weight: forward, for the gradient of the input where anything before it is trained, and for
// that of the weight.
double flops_per_token(const ModelConfig& config, const std::vector<ParameterRow>& rows) {
  const int64_t first = first_trained_layer(rows);
  double flops = 0;
  for (const ParameterRow& row : rows) {
    const bool is_head = row.role == Role::head || !row.tied_name.empty();
    const bool is_only_looked_up =
        row.role == Role::position_embedding || (row.role == Role::token_embedding && !is_head);
    if (is_only_looked_up) continue;
    const int times = 1 + (is_head || row.layer >= first ? 1 : 0) + (row.is_trained ? 1 : 0);
    flops += 2.0 * times * static_cast<double>(row.whole_count());
  }
  for (int64_t layer = 0; layer < config.n_layer; ++layer) {
    const double times = layer >= first ? 3 : 1;  // two of them in the backward pass
    flops +=
        4.0 * times * config.visible_share(layer) * static_cast<double>(config.attention_width() * config.block_size);
  }
  return flops;
}

double flops_per_token(const ModelConfig& config) { return flops_per_token(config, parameter_table(config)); }

}  // namespace gpt::layout
