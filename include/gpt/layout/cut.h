// Tensor parallelism: which part of every parameter each process of a group has. Heads and the hidden columns of the MLP are dealt out
// evenly, and the rows of the vocabulary as evenly as they can be; normalizations, learned positions and the biases of products that are
// added up over the processes are whole in each of them. That sizes can be divided so, the rules of config/rules.h have made sure. In training
// each process also has a part of the rows of what flows between the layers.
// Pipeline parallelism: which parameters a stage has, all of them whole (layout/stages.h).
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/layout/parameter_table.h"

namespace gpt::layout {

// Which of so many parts of every layer of a model, and which of its stages.
struct ModelPart {
  int64_t rank = 0, size = 1;
  int64_t stage = 0, stages = 1;

  bool is_first_stage() const { return stage == 0; }
  bool is_last_stage() const { return stage == stages - 1; }
};

// How many of so many rows of the residual stream, one for each token, each process has: as many in all of them, so that the last rows of
// the last ones may be padding.
inline int64_t rows_of_part(int64_t rows, const ModelPart& part) { return (rows + part.size - 1) / part.size; }

// The rows of the token embedding and of the head that a part has: [begin, end) of `padded` ones.
FlatSpan vocabulary_rows(int64_t padded, const ModelPart& part);

// Where the values of a part lie in the whole tensor, both in their order in memory: the stretches that [begin, end) of the part are, which
// ascend; and how many values of the part lie before a place in the whole one. Null: the part is the whole.
std::vector<FlatSpan> stretches_in_whole(const RowCut* cut, FlatSpan of_part);
int64_t values_before(const RowCut* cut, int64_t in_whole);

// The table of a part, from that of the whole model; the order and the names stay. The token embedding of a tied head is also the last
// stage's.
std::vector<ParameterRow> cut(std::vector<ParameterRow> rows, const ModelConfig& model, const ModelPart& part);

// A model of its own whose tensors have the shapes of the largest part: for what a process keeps and computes.
ModelConfig largest_part(ModelConfig model, int64_t parts);

}  // namespace gpt::layout
