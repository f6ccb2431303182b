// The gradient that cuDNN packs, against the three of LibTorch's attention with the same inputs, packed by our kernel. Both are compared
// with float64 in attention_test.cpp.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "gpt/model/recompute.h"
#include "gpt/ops/aten_attention.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/sdp_backends.h"
#include "support/device_cases.h"
#include "support/restore_context.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct PackedCase {
  int64_t B, T, H, KV, D;
};

// As GPT-2's; with fewer keys than queries; other widths of heads; lengths that are no multiple of a block.
const PackedCase kPackedCases[] = {
    {4, 1024, 12, 12, 64}, {2, 256, 6, 2, 64}, {3, 130, 4, 4, 128}, {2, 77, 4, 1, 80}, {5, 64, 3, 3, 16}};

bool is_packed(const at::Tensor& y) { return y.grad_fn()->name().find("AttentionByCudnn") != std::string::npos; }

// On a GPU for whose bfloat16 LibTorch chooses cuDNN where it is allowed.
class PackedGradient : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && !chooses_cudnn(split_heads(qkv(2, 64, 1, 1, 64), {1, 1})))
      GTEST_SKIP() << "LibTorch does not choose cuDNN on this GPU";
  }
  static bool chooses_cudnn(const Heads& heads) {
    return chosen_sdp_backend(heads.q.transpose(1, 2), heads.k.transpose(1, 2), heads.v.transpose(1, 2),
                              /*dropout=*/0) == at::SDPBackend::cudnn_attention;
  }
  at::Tensor draw(at::IntArrayRef sizes, at::ScalarType type = at::kBFloat16) {
    return at::randn(sizes, generator_).to(device(), type);
  }
  at::Tensor qkv(int64_t B, int64_t T, int64_t H, int64_t KV, int64_t D) {
    return draw({B, T, (H + 2 * KV) * D}).requires_grad_();
  }
  at::Generator generator_ = at::detail::createCPUGenerator(1);
};

TEST_P(PackedGradient, IsThatOfLibTorchsAttention) {
  for (const auto& [B, T, H, KV, D] : kPackedCases) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(testing::Message() << B << " x " << T << ", " << H << " and " << KV << " heads of " << D << ", "
                                      << type);
      const at::Tensor values = draw({B, T, (H + 2 * KV) * D}, type), upstream = draw({B, T, H * D}, type),
                       apart = values.clone().requires_grad_();
      const Heads heads = split_heads(apart, {H, KV});
      const at::Tensor expected = aten_attention(heads, {H, KV});
      expected.backward(upstream);
      for (int time = 0; time < 2; ++time) {  // the first one has been compared with LibTorch's on the way
        const at::Tensor packed = values.clone().requires_grad_(), y = attention(packed, {H, KV});
        EXPECT_EQ(is_packed(y), chooses_cudnn(heads));
        EXPECT_TRUE(y.equal(expected));
        y.backward(upstream);
        const double largest = apart.grad().abs().max().item<double>();
        EXPECT_LE((packed.grad() - apart.grad()).abs().max().item<double>(), test::tolerance(type, 5, largest));
      }
    }
  }
}

TEST_P(PackedGradient, IsNotMadeWhereCudnnIsForbidden) {
  const at::Tensor x = qkv(2, 64, 1, 1, 64);
  EXPECT_TRUE(is_packed(attention(x, {1, 1})));
  {
    const OnlySdpBackends others(without_cudnn());
    EXPECT_FALSE(is_packed(attention(x, {1, 1})));
  }
  const RestoreContext restore;
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  EXPECT_FALSE(is_packed(attention(x, {1, 1})));
}

// What it does not take goes the other way.
TEST_P(PackedGradient, HasNoDropoutRotationAndMasks) {
  const at::Tensor x = qkv(2, 64, 1, 1, 64);
  EXPECT_FALSE(is_packed(attention(x, {1, 1, {0.5}})));
  EXPECT_FALSE(is_packed(attention(x, {1, 1}, rotary_tables(64, 64, 10000.0, device()))));
  EXPECT_FALSE(is_packed(attention(x, {.heads = 1, .kv_heads = 1, .window = 5})));
  const at::Tensor starts = at::zeros({2, 64}, at::dtype(at::kInt).device(device()));
  EXPECT_FALSE(is_packed(attention(x, {.heads = 1, .kv_heads = 1, .document_starts = starts})));
}

// The first pass of gradient checkpointing is LibTorch's, and the second has the packed gradient.
TEST_P(PackedGradient, IsTheSameAfterRecomputation) {
  const auto run = [](const std::vector<at::Tensor>& x, model::BodyRun /*run*/) { return attention(x[0], {4, 2}); };
  const at::Tensor x = qkv(2, 256, 4, 2, 64), again = x.detach().clone().requires_grad_(),
                   upstream = draw({2, 256, 256});
  const at::Tensor y = run({x}, model::BodyRun::first),
                   second = model::recompute_in_backward(run, {again}, /*draws=*/false);
  EXPECT_TRUE(second.equal(y));
  y.backward(upstream);
  second.backward(upstream);
  // Its sums are in no fixed order.
  const double largest = x.grad().abs().max().item<double>();
  EXPECT_LE((again.grad() - x.grad()).abs().max().item<double>(), test::tolerance(at::kBFloat16, 2, largest));
}

INSTANTIATE_TEST_SUITE_P(, PackedGradient, testing::Values(kDevices[1]), [](const auto&) { return "cuda"; });

}  // namespace
}  // namespace gpt::ops
