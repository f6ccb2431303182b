#include "gpt/layout/cut.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gpt {
namespace {

ModelConfig grouped_model() {
  ModelConfig model;
  model.n_layer = 1, model.n_head = 8, model.n_kv_head = 4, model.n_embd = 64, model.n_hidden = 100;
  model.vocab_size = 101, model.vocab_multiple = 1, model.bias = true, model.tie_weights = false;
  model.norm = Norm::layernorm, model.mlp = Mlp::gelu, model.position = Position::learned;
  return model;
}

// What is divided lies in exactly one of the parts, whatever the size of these.
TEST(Cut, ThePiecesOfAllPartsAreTheWhole) {
  const ModelConfig model = grouped_model();
  const std::vector<ParameterRow> whole = parameter_table(model);
  for (const int64_t size : {2, 4}) {
    for (size_t i = 0; i < whole.size(); ++i) {
      std::multiset<int64_t> covered;
      for (int64_t rank = 0; rank < size; ++rank) {
        const ParameterRow row = cut(whole, model, {rank, size})[i];
        EXPECT_EQ(row.name, whole[i].name);
        EXPECT_EQ(row.whole_shape(), whole[i].shape);
        EXPECT_EQ(row.whole_count(), whole[i].count());
        if (!row.cut) continue;
        int64_t length = 0;
        for (const RowCut::Piece& piece : row.cut->pieces) {
          for (int64_t at = piece.begin; at < piece.begin + piece.length; ++at) covered.insert(at);
          length += piece.length;
        }
        EXPECT_EQ(row.shape[row.cut->dim], length);
      }
      const bool is_whole =
          whole[i].role == ParameterRole::position_embedding || whole[i].role == ParameterRole::attention_norm ||
          whole[i].role == ParameterRole::mlp_norm || whole[i].role == ParameterRole::final_norm ||
          ((whole[i].role == ParameterRole::attention_out || whole[i].role == ParameterRole::mlp_out) &&
           whole[i].is_bias);
      ASSERT_EQ(covered.empty(), is_whole) << whole[i].name;
      if (is_whole) continue;
      const ParameterRow part = cut(whole, model, {0, size})[i];
      EXPECT_EQ(std::ssize(covered), whole[i].shape[part.cut->dim]) << whole[i].name;
      EXPECT_EQ(std::set<int64_t>(covered.begin(), covered.end()).size(), covered.size()) << whole[i].name;
    }
  }
}

// The heads of a process use keys and values of its own.
TEST(Cut, QueriesKeysAndValuesAreThreePieces) {
  const ModelConfig model = grouped_model();
  const ParameterRow row = cut(parameter_table(model), model, {1, 2})[4];
  ASSERT_EQ(row.name, "transformer.h.0.attn.c_attn.weight");
  ASSERT_EQ(row.cut->pieces.size(), 3u);
  EXPECT_EQ(row.cut->pieces[0].begin, 32);       // of 64 rows of queries
  EXPECT_EQ(row.cut->pieces[1].begin, 64 + 16);  // of 32 of keys
  EXPECT_EQ(row.cut->pieces[2].begin, 96 + 16);
  EXPECT_EQ(row.query_rows, 32);
  EXPECT_EQ(row.shape, (std::vector<int64_t>{64, 64}));
}

TEST(Cut, ALargestPartHasTheSizesOfTheFirstOne) {
  const ModelConfig model = grouped_model();
  const std::vector<ParameterRow> narrow = parameter_table(largest_part(model, 4)),
                                  last = cut(parameter_table(model), model, {3, 4});
  for (size_t i = 0; i < narrow.size(); ++i) EXPECT_EQ(narrow[i].shape, last[i].shape) << narrow[i].name;
}

}  // namespace
}  // namespace gpt
