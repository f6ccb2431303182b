// The heads of the packed product against views and a rotation in float64, on every device and with the CUDA kernel under emulation;
// and attention on a GPU, with LibTorch's between the two passes.
#include "gpt/ops/heads.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpt/model/recompute.h"
#include "gpt/ops/aten_attention.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/linear.h"
#include "support/device_cases.h"
#include "support/emulated_kernels.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct HeadsCase {
  int64_t B, T, H, KV, D;
  bool rope;

  int64_t width() const { return (H + 2 * KV) * D; }
  RotaryTables tables(at::Device device) const { return rope ? rotary_tables(T, D, 10000.0, device) : RotaryTables{}; }
};

void PrintTo(const HeadsCase& c, std::ostream* out) {
  *out << c.B << " x " << c.T << ", " << c.H << " and " << c.KV << " heads of " << c.D << (c.rope ? " rotated" : "");
}

// Widths of whole groups of eight and others, odd ones where nothing is rotated; more than a block has threads.
const HeadsCase kHeadsCases[] = {{1, 1, 1, 1, 1, false},  {2, 5, 3, 1, 7, false},  {2, 3, 4, 2, 16, false},
                                 {1, 1, 1, 1, 2, true},   {3, 7, 4, 2, 10, true},  {2, 33, 6, 6, 64, true},
                                 {1, 5, 8, 2, 128, true}, {2, 3, 5, 5, 48, true},  {1, 2, 24, 24, 80, true},
                                 {2, 4, 9, 3, 32, false}, {1, 9, 20, 4, 30, true}, {2, 6, 12, 12, 64, false}};

using test::exact;

// Heads of float64 that autograd follows to `qkv`.
Heads reference(const at::Tensor& qkv, const HeadsCase& c) {
  auto parts = qkv.view({c.B, c.T, c.H + 2 * c.KV, c.D}).split_with_sizes({c.H, c.KV, c.KV}, 2);
  const auto rotated = [&](const at::Tensor& x) {
    if (!c.rope) return x;
    const auto tables = c.tables(at::kCPU);
    const at::Tensor cos = at::cat({tables.cos, tables.cos}, -1).to(at::kDouble),
                     sin = at::cat({tables.sin, tables.sin}, -1).to(at::kDouble);
    const auto halves = x.chunk(2, -1);
    return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
  };
  return {rotated(parts[0]), rotated(parts[1]), parts[2]};
}

class HeadsTest : public testing::TestWithParam<std::tuple<DeviceCase, HeadsCase>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(where());
    if (where().is_emulated) emulated_.emplace();
  }
  const DeviceCase& where() const { return std::get<0>(GetParam()); }
  const HeadsCase& shape() const { return std::get<1>(GetParam()); }
  RotaryTables tables() const { return shape().tables(where().device); }
  at::Tensor draw(at::IntArrayRef sizes, at::ScalarType type) {
    return at::randn(sizes, generator_).to(where().device, type);
  }
  Heads split(at::Tensor qkv) const { return split_heads(std::move(qkv), {shape().H, shape().KV}, tables()); }

  // Two products and their sum in float32, of values below `largest`, and a rounding to the type.
  static void expect_near(const at::Tensor& actual, const at::Tensor& expected, const char* name) {
    ASSERT_EQ(actual.sizes(), expected.sizes()) << name;
    const auto type = actual.scalar_type();
    const double largest = expected.abs().max().item<double>();
    const double last = type == at::kFloat ? 0 : test::unit_roundoff(type);
    EXPECT_LE((exact(actual) - expected).abs().max().item<double>(),
              test::tolerance(at::kFloat, 3, 2 * largest) + last * largest + test::underflow(type))
        << name << " of " << type;
  }

  at::Generator generator_ = at::detail::createCPUGenerator(1);
  std::optional<test::EmulatedKernels> emulated_;
};

TEST_P(HeadsTest, EqualsFloat64InBothPasses) {
  const auto [B, T, H, KV, D, rope] = shape();
  // The gradients as a product of heads leaves them, as one of positions does, and as a sum does.
  for (const char* layout : {"positions of a head", "heads of a position", "one value"}) {
    for (const auto type : kernel_types(where())) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::string(layout) + (in_place ? ", in place" : ""));
        const at::Tensor values = draw({B, T, shape().width()}, type), qkv = values.clone().requires_grad_(),
                         exact_qkv = exact(values).requires_grad_();
        const Heads heads = split(in_place ? qkv * 1 : qkv), expected = reference(exact_qkv, shape());
        EXPECT_EQ(heads.q.scalar_type(), type);
        expect_near(heads.q, expected.q.detach(), "q");
        expect_near(heads.k, expected.k.detach(), "k");
        EXPECT_TRUE(heads.v.detach().cpu().to(at::kDouble).equal(expected.v.detach()));
        EXPECT_TRUE(qkv.detach().equal(values)) << "what came in was changed";
        const auto upstream = [&](int64_t heads) {
          if (layout == std::string("one value")) return draw({1}, type).expand({B, T, heads, D});
          if (layout == std::string("heads of a position")) return draw({B, T, heads, D}, type);
          return draw({B, heads, T, D}, type).transpose(1, 2);
        };
        const at::Tensor of_q = upstream(H), of_k = upstream(KV), of_v = upstream(KV);
        torch::autograd::backward({heads.q, heads.k, heads.v}, {of_q, of_k, of_v});
        torch::autograd::backward({expected.q, expected.k, expected.v}, {exact(of_q), exact(of_k), exact(of_v)});
        expect_near(qkv.grad(), exact_qkv.grad(), "gradient");
      }
    }
  }
}

TEST_P(HeadsTest, WithoutGradientsItGivesTheSame) {
  const at::Tensor qkv = draw({shape().B, shape().T, shape().width()}, at::kFloat).requires_grad_();
  const Heads with = split(qkv);
  const at::NoGradGuard no_grad;
  const Heads without = split(qkv);
  EXPECT_TRUE(with.k.requires_grad());
  EXPECT_FALSE(without.k.requires_grad());
  EXPECT_TRUE(without.q.equal(with.q) && without.k.equal(with.k) && without.v.equal(with.v));
}

// The packed product, its heads, attention by LibTorch, and back.
TEST_P(HeadsTest, AttentionBetweenThePassesEqualsThatOfViews) {
  const HeadsCase& c = shape();
  for (const auto type : kernel_types(where())) {
    SCOPED_TRACE(c10::toString(type));
    const at::Tensor values = draw({c.B, c.T, c.width()}, type), ours = values.clone().requires_grad_(),
                     theirs = exact(values).requires_grad_();
    const AttentionSpec spec{c.H, c.KV};
    const at::Tensor y = aten_attention(split(ours * 1), spec), expected = aten_attention(reference(theirs, c), spec);
    const at::Tensor upstream = draw(y.sizes(), type);
    y.backward(upstream);
    expected.backward(exact(upstream));
    // A value passes through sums over D and T, and some twenty operations around them. 16 bits round queries and keys, the weights,
    // the output, the gradient of the scores, those of heads and their sum over a group, and the result.
    const int64_t roundings = type == at::kFloat ? 2 * c.D + c.T + 20 : 7;
    const auto near = [&](const at::Tensor& actual, const at::Tensor& of_float64) {
      EXPECT_EQ(actual.scalar_type(), type);
      EXPECT_LE((exact(actual) - of_float64).abs().max().item<double>(),
                test::tolerance(type, roundings, of_float64.abs().max().item<double>()));
    };
    near(y, expected.detach());
    near(ours.grad(), theirs.grad());
  }
}

// The second run of gradient checkpointing rotates a product of its own.
TEST_P(HeadsTest, RecomputingItGivesTheSameBits) {
  const HeadsCase& c = shape();
  const parameters::Parameter weight(draw({c.width(), 6}, at::kFloat));
  const auto run = [&](const std::vector<at::Tensor>& x, model::BodyRun /*run*/) {
    return aten_attention(split(linear(x[0], weight, {}, ProductInput::keep)), {c.H, c.KV});
  };
  const at::Tensor x = draw({c.B, c.T, 6}, at::kFloat).requires_grad_(), again = x.detach().clone().requires_grad_();
  const at::Tensor y = run({x}, model::BodyRun::first), upstream = draw(y.sizes(), at::kFloat);
  y.backward(upstream);
  const at::Tensor of_weight = weight.gradient().clone();
  weight.clear_gradient();
  const at::Tensor second = model::recompute_in_backward(run, {again}, /*draws=*/false);
  second.backward(upstream);
  EXPECT_TRUE(second.equal(y));
  EXPECT_TRUE(again.grad().equal(x.grad()));
  EXPECT_TRUE(weight.gradient().equal(of_weight));
}

struct WeightsOfNorms {
  parameters::Parameter query, key;
  HeadNorms norms() const { return {query, key, kEps}; }

  static constexpr double kEps = 1e-4;
};

// The heads of `parts` normalized in float64, with weights that autograd follows.
at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
  return x / (x.square().mean(-1, /*keepdim=*/true) + WeightsOfNorms::kEps).sqrt() * weight;
}

at::Tensor normed_qkv(const at::Tensor& qkv, const HeadsCase& c, const at::Tensor& of_query, const at::Tensor& of_key) {
  const auto parts = qkv.view({c.B, c.T, c.H + 2 * c.KV, c.D}).split_with_sizes({c.H, c.KV, c.KV}, 2);
  return at::cat({normed(parts[0], of_query), normed(parts[1], of_key), parts[2]}, 2).flatten(2);
}

class HeadNormsTest : public HeadsTest {
 protected:
  WeightsOfNorms draw_weights() {
    const auto one = [&] { return parameters::Parameter(1 + 0.3 * draw({shape().D}, at::kFloat)); };
    return {one(), one()};
  }
  // `actual` came to be by so many roundings in float32, from terms as large as `magnitude`, and by `last` ones in its own type.
  static void expect_within(const at::Tensor& actual, const at::Tensor& expected, int64_t roundings, double magnitude,
                            int last, const char* name) {
    ASSERT_EQ(actual.sizes(), expected.sizes()) << name;
    const auto type = actual.scalar_type();
    const double in_type = type == at::kFloat ? 0 : last * test::unit_roundoff(type) * magnitude;
    EXPECT_LE((exact(actual) - expected.detach()).abs().max().item<double>(),
              test::tolerance(at::kFloat, roundings, magnitude) + in_type + test::underflow(type))
        << name << " of " << type;
  }
};

double largest_magnitude(const at::Tensor& x) { return x.detach().abs().max().item<double>(); }

TEST_P(HeadNormsTest, EqualFloat64InBothPasses) {
  const HeadsCase& c = shape();
  for (const auto type : kernel_types(where())) {
    SCOPED_TRACE(c10::toString(type));
    const WeightsOfNorms weights = draw_weights();
    const AttentionSpec spec{.heads = c.H, .kv_heads = c.KV, .norms = weights.norms()};
    const at::Tensor values = draw({c.B, c.T, c.width()}, type), qkv = values.clone().requires_grad_(),
                     exact_qkv = exact(values).requires_grad_(),
                     of_query = exact(weights.query.value()).requires_grad_(),
                     of_key = exact(weights.key.value()).requires_grad_();
    const Heads heads = split_heads(qkv * 1, spec, tables()),
                expected = reference(normed_qkv(exact_qkv, c, of_query, of_key), c);
    // The sum of squares, its root and quotient, two products and a rotation; on a CPU it is rounded before it is rotated, too.
    for (const auto& [actual, exactly, name] :
         {std::tuple(heads.q, expected.q, "q"), std::tuple(heads.k, expected.k, "k")})
      expect_within(actual, exactly, c.D + 10, 2 * largest_magnitude(exactly), 2, name);
    EXPECT_TRUE(exact(heads.v).equal(expected.v.detach()));
    EXPECT_TRUE(qkv.detach().equal(values)) << "what came in was changed";
    {
      const at::NoGradGuard no_grad;
      const Heads without = split_heads(qkv * 1, spec, tables());
      EXPECT_TRUE(without.q.equal(heads.q) && without.k.equal(heads.k) && without.v.equal(heads.v));
    }
    const at::Tensor q = draw({c.B, c.T, c.H, c.D}, type), k = draw({c.B, c.T, c.KV, c.D}, type),
                     v = draw({c.B, c.T, c.KV, c.D}, type);
    torch::autograd::backward({heads.q, heads.k, heads.v}, {q, k, v});
    torch::autograd::backward({expected.q, expected.k, expected.v}, {exact(q), exact(k), exact(v)});
    // The gradient of a head is a difference of terms of this size.
    const at::Tensor squares = exact_qkv.detach().view({c.B, c.T, -1, c.D}).square().mean(-1);
    const double reciprocal = largest_magnitude((squares + WeightsOfNorms::kEps).rsqrt()),
                 of_terms = 2 * std::max(largest_magnitude(q), largest_magnitude(k)) *
                            std::max(largest_magnitude(of_query), largest_magnitude(of_key));
    expect_within(qkv.grad(), exact_qkv.grad(), 3 * c.D + 20, of_terms * reciprocal * std::sqrt(c.D), 3, "gradient");
    const auto tokens = static_cast<double>(c.B * c.T);
    for (const auto& [weight, exactly, count, name] : {std::tuple(weights.query, of_query, c.H, "weight of queries"),
                                                       std::tuple(weights.key, of_key, c.KV, "weight of keys")})
      expect_within(exact(weight.gradient()).to(at::kFloat), exactly.grad(), c.B * c.T * count + c.D + 20,
                    of_terms * std::sqrt(c.D) * std::sqrt(tokens * static_cast<double>(count)) *
                        (type == at::kFloat ? 1 : 1 + test::unit_roundoff(type) / test::unit_roundoff(at::kFloat)),
                    0, name);
  }
}

TEST_P(HeadNormsTest, AttentionEqualsFloat64InBothPasses) {
  const HeadsCase& c = shape();
  for (const auto type : kernel_types(where())) {
    if (type == at::kHalf && where().device.is_cpu()) continue;  // attention has no such type there
    SCOPED_TRACE(c10::toString(type));
    const WeightsOfNorms weights = draw_weights();
    const AttentionSpec spec{.heads = c.H, .kv_heads = c.KV, .norms = weights.norms()}, plain{c.H, c.KV};
    const at::Tensor values = draw({c.B, c.T, c.width()}, type), ours = values.clone().requires_grad_(),
                     theirs = exact(values).requires_grad_(), of_query = exact(weights.query.value()).requires_grad_(),
                     of_key = exact(weights.key.value()).requires_grad_();
    const at::Tensor y = attention(ours * 1, spec, tables()),
                     expected = aten_attention(reference(normed_qkv(theirs, c, of_query, of_key), c), plain);
    const at::Tensor upstream = draw(y.sizes(), type);
    y.backward(upstream);
    expected.backward(exact(upstream));
    // As without norms, and as those above: queries and keys are as long as the root of D, so that scores are larger by so much.
    const int64_t roundings = type == at::kFloat ? 5 * c.D + c.T + 40 : 12;
    const double growth = 1 + std::sqrt(static_cast<double>(c.D));
    const at::Tensor squares = theirs.detach().view({c.B, c.T, -1, c.D}).square().mean(-1);
    const double reciprocal = std::max(1.0, largest_magnitude((squares + WeightsOfNorms::kEps).rsqrt()));
    const auto near = [&](const at::Tensor& actual, const at::Tensor& of_float64, double more, const char* name) {
      EXPECT_LE((exact(actual) - of_float64.detach()).abs().max().item<double>(),
                test::tolerance(type, roundings, growth * more * std::max(1.0, largest_magnitude(of_float64))))
          << name;
    };
    near(y, expected, 1, "y");
    near(ours.grad(), theirs.grad(), reciprocal, "gradient");
    const double sums = std::sqrt(static_cast<double>(c.B * c.T * c.H));
    near(weights.query.gradient(), of_query.grad(), sums, "weight of queries");
    near(weights.key.gradient(), of_key.grad(), sums, "weight of keys");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, HeadNormsTest,
                         testing::Combine(testing::ValuesIn(kDevicesAndEmulation), testing::ValuesIn(kHeadsCases)),
                         index_and_device);
INSTANTIATE_TEST_SUITE_P(Devices, HeadsTest,
                         testing::Combine(testing::ValuesIn(kDevicesAndEmulation), testing::ValuesIn(kHeadsCases)),
                         index_and_device);

class HeadsOn : public DeviceTest {
 protected:
  static constexpr int64_t kB = 2, kT = 5, kH = 4, kKV = 2, kD = 16, kWidth = (kH + 2 * kKV) * kD;
  RotaryTables tables() const { return rotary_tables(kT, kD, 10000.0, device()); }
  at::Tensor draw(at::IntArrayRef sizes) const {
    return at::randn(sizes, at::detail::createCPUGenerator(1)).to(device());
  }
};

TEST_P(HeadsOn, AProductThatIsMovedInIsRotatedWhereItLies) {
  const parameters::Parameter weight(draw({kWidth, 8}));
  for (const parameters::Parameter& bias : {parameters::Parameter(), parameters::Parameter(draw({kWidth}))}) {
    for (const bool with_gradients : {true, false}) {
      const at::AutoGradMode mode(with_gradients);
      at::Tensor qkv = linear(draw({kB, kT, 8}), weight, bias, ProductInput::keep);
      const void* const place = qkv.const_data_ptr();
      const Heads heads = split_heads(std::move(qkv), {kH, kKV}, tables());
      EXPECT_EQ(heads.q.const_data_ptr(), place);
    }
  }
}

TEST_P(HeadsOn, WhatSomebodyElseHoldsStaysAsItIs) {
  const at::Tensor leaf = draw({kB, kT, kWidth}).requires_grad_(), values = leaf.detach().clone();
  at::Tensor shared = leaf * 1;
  const at::Tensor other = shared;
  (void)split_heads(std::move(shared), {kH, kKV}, tables());
  EXPECT_TRUE(other.equal(values));

  at::Tensor part = other.narrow(0, 0, 1);  // a view, which moves in while what it is of stays
  (void)split_heads(std::move(part), {kH, kKV}, tables());
  EXPECT_TRUE(other.equal(values));

  at::Tensor kept = leaf.exp();  // whose backward pass needs what it gave
  const Heads heads = split_heads(std::move(kept), {kH, kKV}, tables());
  const at::Tensor upstream = draw(heads.v.sizes());
  heads.v.backward(upstream);
  EXPECT_TRUE(
      leaf.grad().narrow(2, (kH + kKV) * kD, kKV * kD).equal(upstream.flatten(2) * heads.v.detach().flatten(2)));
  leaf.mutable_grad() = at::Tensor();
  const Heads again = split_heads(leaf.exp(), {kH, kKV}, tables());
  torch::autograd::backward({again.q}, {draw(again.q.sizes())});
  const at::Tensor exact_leaf = exact(leaf).requires_grad_();
  const Heads expected = reference(exact_leaf.exp(), {kB, kT, kH, kKV, kD, true});
  expected.q.backward(exact(draw(again.q.sizes())));
  EXPECT_LE((exact(leaf.grad()) - exact_leaf.grad()).abs().max().item<double>(),
            test::tolerance(at::kFloat, 8, exact_leaf.grad().abs().max().item<double>()));
}

TEST_P(HeadsOn, RejectsWhatDoesNotFit) {
  const at::Tensor qkv = draw({kB, kT, kWidth});
  EXPECT_THROW((void)split_heads(qkv, {kH, kKV + 1}), c10::Error);
  EXPECT_THROW((void)split_heads(qkv, {0, kKV}), c10::Error);
  EXPECT_THROW((void)split_heads(qkv.select(0, 0), {kH, kKV}), c10::Error);
  const parameters::Parameter wide(draw({kD + 1}));
  EXPECT_THROW((void)split_heads(qkv, {.heads = kH, .kv_heads = kKV, .norms = {wide, wide, 1e-5}}), c10::Error);
  EXPECT_THROW((void)attention(qkv, {.heads = kH, .kv_heads = kKV, .norms = {wide, wide, 1e-5}}), c10::Error);
  EXPECT_THROW((void)split_heads(qkv.to(at::kDouble), {kH, kKV}), c10::Error);
  EXPECT_THROW((void)split_heads(qkv, {kH, kKV}, rotary_tables(kT + 1, kD, 10000.0, device())), c10::Error);
  const Heads heads = split_heads(qkv.transpose(0, 1), {kH, kKV});
  EXPECT_TRUE(heads.v.equal(split_heads(qkv, {kH, kKV}).v.transpose(0, 1))) << "a strided one is packed first";
}

INSTANTIATE_ON_DEVICES(HeadsOn);

}  // namespace
}  // namespace gpt::ops
