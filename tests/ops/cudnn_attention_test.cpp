// The gradient that cuDNN packs, against the three of LibTorch's attention with the same inputs, packed by our kernel. Both are compared
// with float64 in attention_test.cpp.
#include "src/ops/cudnn_attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "gpt/ops/aten.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/sdp_backends.h"
#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct PackedCase {
  int64_t B, T, H, KV, D;
};

// As GPT-2's; with fewer keys than queries; other widths of heads; lengths that are no multiple of a block.
const PackedCase kPackedCases[] = {
    {4, 1024, 12, 12, 64}, {2, 256, 6, 2, 64}, {3, 130, 4, 4, 128}, {2, 77, 4, 1, 80}, {5, 64, 3, 3, 16}};

class PackedGradient : public DeviceTest {
 protected:
  bool is_chosen(const Heads& heads) const {
    return at::_fused_sdp_choice(heads.q.transpose(1, 2), heads.k.transpose(1, 2), heads.v.transpose(1, 2), {},
                                 /*dropout_p=*/0, /*is_causal=*/true, std::nullopt,
                                 /*enable_gqa=*/heads.k.size(2) < heads.q.size(2)) ==
           static_cast<int64_t>(at::SDPBackend::cudnn_attention);
  }
  at::Generator generator_ = at::detail::createCPUGenerator(1);
};

TEST_P(PackedGradient, IsThatOfLibTorchsAttention) {
  for (const auto& [B, T, H, KV, D] : kPackedCases) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(testing::Message() << B << " x " << T << ", " << H << " and " << KV << " heads of " << D << ", "
                                      << type);
      const at::Tensor values = at::randn({B, T, (H + 2 * KV) * D}, generator_).to(device(), type),
                       upstream = at::randn({B, T, H * D}, generator_).to(device(), type);
      const at::Tensor packed = values.clone().requires_grad_(), apart = values.clone().requires_grad_();
      const Heads heads = split_heads(apart, {H, KV});
      if (!is_chosen(heads)) GTEST_SKIP() << "LibTorch does not choose cuDNN on this GPU";
      const at::Tensor y = attention(packed, {H, KV}), expected = aten_attention(heads, {H, KV});
      EXPECT_NE(y.grad_fn()->name().find("AttentionByCudnn"), std::string::npos) << y.grad_fn()->name();
      EXPECT_TRUE(y.equal(expected));
      y.backward(upstream);
      expected.backward(upstream);
      const double largest = apart.grad().abs().max().item<double>();
      EXPECT_LE((packed.grad() - apart.grad()).abs().max().item<double>(), test::tolerance(type, 5, largest));
    }
  }
}

TEST_P(PackedGradient, IsMadeWhereCudnnIsAllowed) {
  const at::Tensor qkv = at::randn({2, 64, 3 * 64}, generator_).to(device(), at::kBFloat16).requires_grad_();
  const OnlySdpBackends others(without_cudnn());
  EXPECT_EQ(attention(qkv, {1, 1}).grad_fn()->name().find("AttentionByCudnn"), std::string::npos);
}

// What it does not take goes the other way.
TEST_P(PackedGradient, HasNoDropoutAndNoRotation) {
  const at::Tensor qkv = at::randn({2, 64, 3 * 64}, generator_).to(device(), at::kBFloat16).requires_grad_();
  for (const at::Tensor& y :
       {attention(qkv, {1, 1, {0.5}}), attention(qkv, {1, 1}, rotary_tables(64, 64, 10000.0, device())),
        attention(qkv, {.heads = 1, .kv_heads = 1, .window = 5})})
    EXPECT_EQ(y.grad_fn()->name().find("AttentionByCudnn"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(, PackedGradient, testing::Values(kDevices[1]), [](const auto&) { return "cuda"; });

}  // namespace
}  // namespace gpt::ops
