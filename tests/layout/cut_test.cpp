#include "gpt/layout/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace gpt::layout {
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

// The places of the whole tensor whose index in the dimension that is cut lies in a piece; a part has their values in this order.
std::vector<int64_t> places_of(const ParameterRow& row) {
  const auto& [whole, dim, pieces] = *row.cut;
  int64_t inner = 1;
  for (size_t i = dim + 1; i < whole.size(); ++i) inner *= whole[i];
  std::vector<int64_t> places;
  for (int64_t place = 0; place < row.whole_count(); ++place) {
    const int64_t index = place / inner % whole[dim];
    if (std::any_of(pieces.begin(), pieces.end(), [index](const RowCut::Piece& piece) {
          return piece.begin <= index && index < piece.begin + piece.length;
        }))
      places.push_back(place);
  }
  return places;
}

TEST(Cut, ValuesOfAPartHaveTheirPlacesInTheWhole) {
  const ModelConfig model = grouped_model();
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const ParameterRow& row : cut(parameter_table(model), model, {rank, 4})) {
      if (!row.cut) continue;
      const std::vector<int64_t> places = places_of(row);
      ASSERT_EQ(std::ssize(places), row.count());
      for (const FlatSpan& span : {FlatSpan{0, row.count()}, {row.count() / 3, row.count() - 5}, {7, 7}}) {
        std::vector<int64_t> found;
        for (const auto& [begin, end] : stretches_in_whole(&*row.cut, span))
          for (int64_t place = begin; place < end; ++place) found.push_back(place);
        EXPECT_EQ(found, std::vector(places.begin() + span.begin, places.begin() + span.end))
            << row.name << ' ' << span.begin;
      }
      for (int64_t place = 0; place <= row.whole_count(); place += 3)
        ASSERT_EQ(values_before(&*row.cut, place),
                  std::lower_bound(places.begin(), places.end(), place) - places.begin())
            << row.name << ' ' << place;
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
}  // namespace gpt::layout
