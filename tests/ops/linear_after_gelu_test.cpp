// The layer after GELU multiplies its gradient by the slope, where products are tuned; nobody else may take GELU's result then.
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "gpt/ops/linear.h"
#include "gpt/products/tuned_product.h"
#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

class LinearAfterGelu : public DeviceTest {
 protected:
  struct Mlp {
    parameters::Parameter in, bias, out;
    at::Tensor x, gelu = {}, y = {};
  };
  Mlp compute(at::ScalarType type) {
    const auto random = [&](at::IntArrayRef sizes) {
      return at::randn(sizes).mul_(0.25).to(at::TensorOptions(device()).dtype(type));
    };
    Mlp mlp{parameters::Parameter(random({kHidden, kWidth})), parameters::Parameter(random({kHidden})),
            parameters::Parameter(random({kWidth, kHidden})), random({2, kRows, kWidth}).requires_grad_()};
    mlp.gelu = linear_activated(Activation::gelu, mlp.x, {mlp.in, mlp.bias});
    mlp.y = linear(mlp.gelu, mlp.out, {});
    return mlp;
  }
  static constexpr int64_t kRows = 40, kWidth = 24, kHidden = 64;
};

TEST_P(LinearAfterGelu, ItsGradientsAreThoseOfFloat64) {
  const TuneProducts tuning(true, device().type());
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Mlp mlp = compute(type);
    const at::Tensor upstream = at::randn({2, kRows, kWidth}).to(mlp.y.options());
    mlp.y.backward(upstream);
    const auto exact = [](const at::Tensor& x) { return x.detach().cpu().to(at::kDouble).requires_grad_(); };
    const at::Tensor x = exact(mlp.x), in = exact(mlp.in.value()), bias = exact(mlp.bias.value()),
                     out = exact(mlp.out.value());
    at::linear(at::gelu(at::linear(x, in, bias), "tanh"), out).backward(exact(upstream).detach());
    const auto distance = [](const at::Tensor& got, const at::Tensor& expected) {
      return ((got.cpu().to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
    };
    // Norms, to which errors of rounding add up as squares, differ by a few roundings each.
    const double bound = 8 * test::unit_roundoff(device().is_cuda() && type == at::kFloat ? at::kHalf : type);  // TF32
    EXPECT_LE(distance(mlp.x.grad(), x.grad()), bound) << type;
    EXPECT_LE(distance(mlp.in.gradient(), in.grad()), bound) << type;
    EXPECT_LE(distance(mlp.bias.gradient(), bias.grad()), bound) << type;
    EXPECT_LE(distance(mlp.out.gradient(), out.grad()), bound) << type;
  }
}

TEST_P(LinearAfterGelu, RefusesAnotherOneThatTakesTheResult) {
  const TuneProducts tuning(true, device().type());
  Mlp mlp = compute(at::kFloat);
  EXPECT_THROW((mlp.y.sum() + mlp.gelu.sum()).backward(), c10::Error);
}

TEST_P(LinearAfterGelu, WithoutTuningAnotherOneMayTakeIt) {
  Mlp mlp = compute(at::kFloat);
  EXPECT_NO_THROW((mlp.y.sum() + mlp.gelu.sum()).backward());
}

INSTANTIATE_ON_DEVICES(LinearAfterGelu);

}  // namespace
}  // namespace gpt::ops
