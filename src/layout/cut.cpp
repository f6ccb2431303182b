#include "gpt/layout/cut.h"

#include <algorithm>
#include <utility>

#include "gpt/layout/stages.h"

namespace gpt::layout {
namespace {

using Pieces = std::vector<RowCut::Piece>;

RowCut::Piece even_piece(int64_t begin, int64_t length, const ModelPart& part) {
  const int64_t of_part = length / part.size;
  return {begin + part.rank * of_part, of_part};
}

// Queries, keys and values lie one behind the other.
Pieces attention_pieces(const ModelConfig& model, const ModelPart& part) {
  const int64_t queries = model.attention_width(), keys = model.kv_heads() * model.head_dim();
  return {even_piece(0, queries, part), even_piece(queries, keys, part), even_piece(queries + keys, keys, part)};
}

Pieces vocabulary_pieces(int64_t padded, const ModelPart& part) {
  const auto [begin, end] = vocabulary_rows(padded, part);
  return {{begin, end - begin}};
}

void set_cut(ParameterRow& row, size_t dim, Pieces pieces) {
  row.cut = RowCut{row.shape, dim, std::move(pieces)};
  row.shape[dim] = 0;
  for (const RowCut::Piece& piece : row.cut->pieces) row.shape[dim] += piece.length;
}

std::vector<ParameterRow> rows_of_stage(std::vector<ParameterRow> rows, const ModelConfig& model,
                                        const ModelPart& part) {
  const LayerSpan own = stages_of(model, part.stages)[static_cast<size_t>(part.stage)];
  std::erase_if(rows, [&](const ParameterRow& row) {
    if (row.layer < 0) return !part.is_first_stage() && !(part.is_last_stage() && !row.tied_name.empty());
    if (row.layer == model.n_layer) return !part.is_last_stage();
    return row.layer < own.begin || row.layer >= own.end;
  });
  return rows;
}

// A tensor lies in memory as one block of values after the other, each of which has all indices of the dimension that is cut.
struct Blocks {
  explicit Blocks(const RowCut& cut) {
    for (size_t i = cut.dim + 1; i < cut.whole.size(); ++i) of_index *= cut.whole[i];
    of_whole = cut.whole[cut.dim] * of_index;
    for (const RowCut::Piece& piece : cut.pieces) of_part += piece.length * of_index;
  }

  int64_t of_index = 1, of_whole, of_part = 0;
};

}  // namespace

std::vector<FlatSpan> stretches_in_whole(const RowCut* cut, FlatSpan of_part) {
  if (!cut) return {of_part};
  const Blocks blocks(*cut);
  std::vector<FlatSpan> stretches;
  for (int64_t block = of_part.begin / blocks.of_part; block * blocks.of_part < of_part.end; ++block) {
    int64_t from = block * blocks.of_part;
    for (const auto& [begin, length] : cut->pieces) {
      const int64_t to = from + length * blocks.of_index, first = std::max(of_part.begin, from),
                    last = std::min(of_part.end, to), shift = block * blocks.of_whole + begin * blocks.of_index - from;
      if (first < last) stretches.push_back({first + shift, last + shift});
      from = to;
    }
  }
  return stretches;
}

int64_t values_before(const RowCut* cut, int64_t in_whole) {
  if (!cut) return in_whole;
  const Blocks blocks(*cut);
  const int64_t block = in_whole / blocks.of_whole, within = in_whole % blocks.of_whole;
  int64_t before = block * blocks.of_part;
  for (const auto& [begin, length] : cut->pieces)
    before += std::clamp(within - begin * blocks.of_index, int64_t{0}, length * blocks.of_index);
  return before;
}

FlatSpan vocabulary_rows(int64_t padded, const ModelPart& part) {
  return {padded * part.rank / part.size, padded * (part.rank + 1) / part.size};
}

std::vector<ParameterRow> cut(std::vector<ParameterRow> rows, const ModelConfig& model, const ModelPart& part) {
  if (part.stages > 1) rows = rows_of_stage(std::move(rows), model, part);
  if (part.size == 1) return rows;
  for (ParameterRow& row : rows) {
    switch (row.role) {
      case ParameterRole::token_embedding:
      case ParameterRole::head: set_cut(row, 0, vocabulary_pieces(row.shape[0], part)); break;
      case ParameterRole::attention_in:
        set_cut(row, 0, attention_pieces(model, part));
        row.query_rows /= part.size;
        break;
      case ParameterRole::mlp_gate:
      case ParameterRole::mlp_in: set_cut(row, 0, {even_piece(0, row.shape[0], part)}); break;
      case ParameterRole::attention_out:
      case ParameterRole::mlp_out:
        if (!row.is_bias) set_cut(row, 1, {even_piece(0, row.shape[1], part)});
        break;
      case ParameterRole::position_embedding:
      case ParameterRole::attention_norm:
      case ParameterRole::query_norm:
      case ParameterRole::key_norm:
      case ParameterRole::attention_out_norm:
      case ParameterRole::mlp_norm:
      case ParameterRole::mlp_out_norm:
      case ParameterRole::final_norm: break;
    }
  }
  return rows;
}

ModelConfig largest_part(ModelConfig model, int64_t parts) {
  if (parts == 1) return model;
  const int64_t heads = model.heads(), kv_heads = model.kv_heads(), width = model.head_dim(), hidden = model.hidden();
  model.n_head = heads / parts;
  model.n_kv_head = kv_heads / parts;
  model.n_head_dim = width;
  model.n_hidden = hidden / parts;
  model.vocab_size = (model.padded_vocab() + parts - 1) / parts;
  model.vocab_multiple = 1;
  return model;
}

}  // namespace gpt::layout
