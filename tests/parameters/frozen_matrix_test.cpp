// Matrices in few bits: what they are unpacked to, and what they take.
#include "gpt/parameters/frozen_matrix.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpt/parameters/parameters.h"
#include "support/expect_error.h"

namespace gpt::parameters {
namespace {

constexpr BaseType kNarrowTypes[] = {BaseType::bfloat16, BaseType::int8, BaseType::int4};

at::Tensor some_matrix(int64_t rows, int64_t columns) {
  return at::empty({rows, columns}).normal_(0, 0.02, at::detail::createCPUGenerator(5));
}

// By LibTorch's operators, from what quantized_weight.h says of the codes.
at::Tensor values_of(const QuantizedWeight& weight) {
  const auto of_groups = [&weight](const at::Tensor& values) {
    return values.to(at::kFloat).repeat_interleave(QuantizedWeight::kGroup, 1).narrow(1, 0, weight.columns);
  };
  if (weight.type == QuantizedType::int8) return weight.codes.to(at::kFloat) * of_groups(weight.scales);
  const at::Tensor pairs = at::stack({weight.codes.bitwise_and(15), weight.codes.bitwise_right_shift(4)}, 2);
  const at::Tensor codes = pairs.view({weight.rows, -1}).narrow(1, 0, weight.columns).to(at::kFloat);
  return codes * of_groups(weight.scales) + of_groups(weight.offsets);
}

TEST(FrozenMatrix, IsUnpackedToWhatItsCodesStandFor) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 64}, {17, 200}, {1, 7}, {40, 129}}) {
    const at::Tensor value = some_matrix(rows, columns);
    for (const QuantizedType type : {QuantizedType::int8, QuantizedType::int4}) {
      const FrozenMatrix matrix(value, type == QuantizedType::int8 ? BaseType::int8 : BaseType::int4);
      const at::Tensor expected = values_of(quantize(value, type));
      EXPECT_TRUE(matrix.unpacked(at::kFloat).equal(expected)) << rows << " x " << columns << ", " << name_of(type);
      EXPECT_TRUE(matrix.unpacked(at::kBFloat16).equal(expected.to(at::kBFloat16)));
    }
    EXPECT_TRUE(
        FrozenMatrix(value, BaseType::bfloat16).unpacked(at::kFloat).equal(value.to(at::kBFloat16).to(at::kFloat)));
  }
}

TEST(FrozenMatrix, GivesSingleRows) {
  const at::Tensor value = some_matrix(30, 70), ids = at::tensor({29, 0, 7, 7}, at::kLong);
  for (const BaseType type : kNarrowTypes) {
    const FrozenMatrix matrix(value, type);
    EXPECT_TRUE(matrix.rows_of(ids, at::kFloat).equal(matrix.unpacked(at::kFloat).index_select(0, ids)));
    for (const int64_t wrong : {int64_t{-1}, int64_t{30}})
      EXPECT_THROW((void)matrix.rows_of(at::full({1}, wrong, at::kLong), at::kFloat), c10::Error);
  }
}

TEST(FrozenMatrix, TakesWhatItsRowSays) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 64}, {17, 200}, {2, 7}}) {
    for (const BaseType type : kNarrowTypes) {
      layout::ParameterRow row{"w", {rows, columns}, layout::ParameterRole::mlp_in, 0, false, {}};
      row.kept = type;
      EXPECT_EQ(FrozenMatrix(some_matrix(rows, columns), type).bytes(), frozen_bytes(row));
    }
  }
}

// A row that is packed lies in no buffer, and what reads its values without unpacking them is refused by LibTorch.
TEST(FrozenMatrix, OfParametersLiesApart) {
  layout::ParameterRow trained{"a", {4, 8}, layout::ParameterRole::mlp_in, 0, false, {.normal_std = 1}};
  layout::ParameterRow frozen{"b", {256, 64}, layout::ParameterRole::mlp_out, 0, false, {.normal_std = 1}};
  frozen.is_trained = false, frozen.kept = BaseType::int8;
  Parameters parameters({trained, frozen}, at::kCPU);
  EXPECT_EQ(parameters.layout().size, 256);
  EXPECT_EQ(parameters.value_bytes() - parameters[1].frozen().bytes(), 4 * 256);
  const at::Tensor value = some_matrix(256, 64);
  parameters.copy_from({{"a", some_matrix(4, 8)}, {"b", value}});
  EXPECT_EQ(parameters.value_bytes(), 4 * 256 + frozen_bytes(frozen));
  const at::Tensor expected = values_of(quantize(value, QuantizedType::int8));
  EXPECT_TRUE(parameters[1].product_value().equal(expected));
  EXPECT_TRUE(parameters[1].value().sizes() == value.sizes() && !parameters[1].is_trained());
  EXPECT_EQ(parameters[1].value().storage().data(), nullptr);
  RowPacker packer({trained, frozen});
  EXPECT_TRUE(packer.take("a", value).is_same(value));
  const at::Tensor stand_in = packer.take("b", value);
  EXPECT_EQ(stand_in.storage().nbytes(), sizeof(float));
  parameters.copy_from({{"a", some_matrix(4, 8)}, {"b", stand_in}}, packer.matrices);
  EXPECT_TRUE(parameters[1].product_value().equal(expected));
  value.fill_(std::numeric_limits<float>::infinity());
  EXPECT_ERROR((void)packer.take("b", value), ExitCode::checkpoint, "'b' holds values that are not finite");
}

// What is drawn is the same, whether or not it is packed then.
TEST(FrozenMatrix, IsDrawnAsOthersAre) {
  layout::ParameterRow row{"w", {64, 64}, layout::ParameterRole::mlp_in, 0, false, {.normal_std = 1}};
  row.is_trained = false;
  const layout::ParameterRow behind{"v", {64}, layout::ParameterRole::mlp_norm, 0, false, {.normal_std = 1}};
  Parameters wide({row, behind}, at::kCPU);
  wide.draw(3);
  row.kept = BaseType::int4;
  Parameters narrow({row, behind}, at::kCPU);
  narrow.draw(3);
  EXPECT_TRUE(narrow[0].product_value().equal(values_of(quantize(wide[0].value(), QuantizedType::int4))));
  EXPECT_TRUE(narrow[1].value().equal(wide[1].value()));
}

}  // namespace
}  // namespace gpt::parameters
