#include "gpt/ops/document_starts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/device_cases.h"

namespace gpt::ops {
namespace {

at::Tensor rows(const std::vector<int64_t>& values, at::ScalarType type) {
  return at::tensor(values).to(type).view({2, -1});
}

class DocumentStarts : public DeviceTest {};

TEST_P(DocumentStarts, AreThoseOfTheLastSeparatorUpToAPosition) {
  const at::Tensor ids = rows({5, 9, 9, 3, 4, 9,   //
                               9, 1, 2, 3, 4, 5},  //
                              at::kLong);
  const at::Tensor starts = document_starts(ids.to(device()), 9);
  EXPECT_EQ(starts.device(), device());
  EXPECT_TRUE(starts.is_contiguous());
  EXPECT_TRUE(at::equal(starts.cpu(), rows({0, 1, 2, 2, 2, 5,  //
                                            0, 0, 0, 0, 0, 0},
                                           at::kInt)));
  EXPECT_TRUE(at::equal(document_starts(ids.to(device()), 7).cpu(), rows(std::vector<int64_t>(12), at::kInt)));
  EXPECT_THROW(document_starts(ids[0], 9), c10::Error);
}

INSTANTIATE_ON_DEVICES(DocumentStarts);

}  // namespace
}  // namespace gpt::ops
