// Which process has what of a flat buffer.
#include "gpt/parallel/division.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "distributed/local_group.h"
#include "gpt/optim/muon.h"

namespace gpt::parallel {
namespace {

// Muon's matrices, each by one process: all have about as much to compute, and none of them is cut.
TEST(Division, MatricesBelongToOneProcessEach) {
  ModelConfig model;
  model.n_layer = 12, model.n_embd = 768, model.n_head = 12, model.vocab_size = 1000, model.block_size = 8;
  OptimizerConfig optimizer;
  optimizer.kind = OptimizerKind::muon;
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(model);
  const layout::FlatLayout layout = layout::flat_layout(rows);
  int64_t last_matrix = 0, matrices = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!optim::is_of_muon(rows[i], optimizer)) continue;
    last_matrix = std::max(last_matrix, layout.offsets[i] + rows[i].count());
    ++matrices;
  }
  EXPECT_EQ(std::ssize(owners_of_matrices(rows, optimizer, 4)), matrices);
  test::in_ranks(4, [&](const distributed::Group& group) {
    for (const int64_t zero : {1, 2}) {
      DistributedConfig config;
      config.zero = zero;
      const Division division(group.communicator(), config, optimizer);
      double flops = 0, all = 0;
      int64_t next = 0;
      for (const Segment& segment : division.segments(rows, layout))
        for (const OwnedSpan& span : segment) {
          EXPECT_EQ(std::exchange(next, span.end), span.begin);
          EXPECT_EQ(span.owner == distributed::kEach, span.begin >= last_matrix)
              << "norms and biases go along with a matrix";
        }
      EXPECT_EQ(next, layout.trained_size);
      const std::vector<layout::FlatSpan> spans = division.spans(rows, layout);
      for (size_t i = 0; i < rows.size(); ++i) {
        if (!optim::is_of_muon(rows[i], optimizer)) continue;
        const int64_t begin = layout.offsets[i], end = begin + rows[i].count();
        const auto covers = [&](const layout::FlatSpan& span) { return span.begin <= begin && end <= span.end; };
        const auto meets = [&](const layout::FlatSpan& span) { return span.begin < end && begin < span.end; };
        const bool is_own = std::any_of(spans.begin(), spans.end(), covers);
        EXPECT_EQ(std::any_of(spans.begin(), spans.end(), meets), is_own) << rows[i].name;
        all += optim::update_flops(rows[i]);
        flops += is_own ? optim::update_flops(rows[i]) : 0;
      }
      EXPECT_NEAR(flops, all / 4, 0.1 * all / 4);
    }
    group.communicator()->sum(at::zeros({1}));  // nobody leaves before all have come
  });
}

}  // namespace
}  // namespace gpt::parallel
