#include "src/model/tensor_sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "distributed/local_group.h"

namespace gpt::model {
namespace {

struct Rows {
  int64_t B, T, C, processes;
};

class OwnRowsTest : public testing::TestWithParam<Rows> {};

// Whole numbers, whose sums have no roundings.
TEST_P(OwnRowsTest, AreSumsThatTogetherAreThoseOfAllRows) {
  const auto [B, T, C, processes] = GetParam();
  const at::Tensor numbers = at::arange(B * T * C, at::kFloat).remainder_(1009).view({B, T, C}),
                   sums = numbers * processes + processes * (processes - 1) / 2;
  test::in_ranks(processes, [&, B = B, T = T, C = C, processes = processes](distributed::Group& group) {
    group.arrange(processes);
    const OwnRows rows{group.mesh().tensor, B, T};
    const int64_t first = std::min(rows.first(), B * T), real = std::min(rows.count(), B * T - first);
    const at::Tensor own = rows.sum(numbers + rows.group->rank());
    EXPECT_EQ(own.sizes(), (at::IntArrayRef{rows.count(), 1, C}));
    EXPECT_TRUE(own.narrow(0, 0, real).squeeze(1).equal(sums.view({B * T, C}).narrow(0, first, real)));
    EXPECT_EQ(own.narrow(0, real, rows.count() - real).count_nonzero().item<int64_t>(), 0) << "padding";
    EXPECT_TRUE(rows.gather(own).equal(sums));
  });
}

// The last two are longer than a stretch, with and without padding.
INSTANTIATE_TEST_SUITE_P(All, OwnRowsTest,
                         testing::Values(Rows{2, 3, 5, 2}, Rows{1, 7, 256, 2}, Rows{1, 1, 3, 2}, Rows{3, 7, 40, 3},
                                         Rows{1, 7, (1 << 20) + 3, 2}, Rows{2, 4, 1 << 20, 2}));

}  // namespace
}  // namespace gpt::model
