#include "gpt/ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace gpt::ops {
namespace {

at::Tensor frequencies(int64_t head_dim, double theta) {
  return at::pow(theta, at::arange(0, head_dim, 2, at::TensorOptions().dtype(at::kDouble)).div_(-head_dim));
}

// direction 1 rotates forward, -1 back.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int direction) {
  const int64_t half = x.size(-1) / 2;
  at::Tensor y = at::empty(x.sizes(), x.options());
  at::Tensor y1 = y.narrow(-1, 0, half), y2 = y.narrow(-1, half, half);
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  at::mul_out(y1, x1, cos).addcmul_(x2, sin, -direction);
  at::mul_out(y2, x2, cos).addcmul_(x1, sin, direction);
  return y;
}

// The gradient of a rotation is the inverse rotation, for which nothing but the shared tables is kept.
struct Rotary : torch::autograd::Function<Rotary> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotate(x, cos, sin, 1);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto tables = context->get_saved_variables();
    return {rotate(gradients[0], tables[0], tables[1], -1), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor frequency_divisors(int64_t head_dim, double theta, const RopeScaling& scaling) {
  const std::vector<double> each = scaling.divisors(head_dim, theta);
  at::Tensor divisors = at::empty({static_cast<int64_t>(each.size())}, at::kDouble);
  std::copy(each.begin(), each.end(), divisors.data_ptr<double>());
  return divisors;
}

RotaryTables rotary_tables(int64_t positions, int64_t head_dim, double theta, at::Device device,
                           const RopeScaling& scaling) {
  TORCH_CHECK(head_dim % 2 == 0, "rotary: the head width must be even, got ", head_dim);
  const at::Tensor frequency = frequencies(head_dim, theta) / frequency_divisors(head_dim, theta, scaling),
                   angle = at::outer(at::arange(positions, frequency.options()), frequency).unsqueeze(1);
  const double magnitude = scaling.magnitude();
  return {angle.cos().mul_(magnitude).to(device, at::kFloat), angle.sin().mul_(magnitude).to(device, at::kFloat)};
}

void check_rotary(const RotaryTables& tables, const at::Tensor& x, int64_t D) {
  TORCH_CHECK(D % 2 == 0 && tables.cos.sizes() == at::IntArrayRef({x.size(1), 1, D / 2}) &&
                  tables.cos.scalar_type() == at::kFloat && tables.cos.device() == x.device(),
              "rotary: for ", x.size(1), " positions and heads of width ", D, " on ", x.device(),
              ", tables must be (positions, 1, width / 2) float32 there, got ", tables.cos.sizes(), " ",
              tables.cos.scalar_type(), " on ", tables.cos.device());
}

at::Tensor rotary(const at::Tensor& x, const RotaryTables& tables) {
  TORCH_CHECK(x.dim() == 4, "rotary: x must be (B, T, heads, D), got ", x.sizes());
  check_rotary(tables, x, x.size(3));
  return Rotary::apply(x, tables.cos.to(x.scalar_type()), tables.sin.to(x.scalar_type()));
}

}  // namespace gpt::ops
