#include "gpt/ops/token_gather.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <tuple>
#include <vector>

#include "support/cuda_emulation.h"  // before the kernel, which it compiles for the host

#include "src/ops/cuda/token_gather.cuh"
#include "support/device_cases.h"

namespace gpt {
namespace {

struct Case {
  int64_t N, B, T;
};

constexpr Case kCases[] = {{2, 1, 1}, {9, 3, 8}, {1000, 7, 31}, {1000, 5, 33}, {5000, 2, 257}, {70000, 1, 1025}};

at::Tensor random_tokens(int64_t N, at::ScalarType type) {
  return at::randint(type == at::kInt ? 1 << 30 : 1 << 16, {N}, at::kLong).to(type);
}

// Starts from one end to the other, both included.
at::Tensor spread_starts(const Case& c) {
  const int64_t last = c.N - c.T - 1;
  at::Tensor starts = at::randint(0, last + 1, {c.B}, at::kLong);
  starts[0] = last;
  if (c.B > 1) starts[1] = 0;
  return starts;
}

// (B, T) by ATen's own gather.
at::Tensor windows(const at::Tensor& tokens, const at::Tensor& starts, int64_t T, int64_t shift) {
  const at::Tensor positions = starts.unsqueeze(1).add(at::arange(shift, shift + T, starts.options()));
  return tokens.to(at::kLong).take(positions);
}

class TokenGatherTest : public testing::TestWithParam<std::tuple<DeviceCase, at::ScalarType>> {};

TEST_P(TokenGatherTest, EqualsIndexing) {
  const auto [where, type] = GetParam();
  GPT_SKIP_WITHOUT(where);
  for (const Case& c : kCases) {
    const at::Tensor tokens = random_tokens(c.N, type), starts = spread_starts(c);
    const auto [inputs, targets] = ops::token_gather(tokens.to(where.device), starts.to(where.device), c.T);
    EXPECT_TRUE(at::equal(inputs.cpu(), windows(tokens, starts, c.T, 0)))
        << "N " << c.N << " B " << c.B << " T " << c.T;
    EXPECT_TRUE(at::equal(targets.cpu(), windows(tokens, starts, c.T, 1)))
        << "N " << c.N << " B " << c.B << " T " << c.T;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, TokenGatherTest,
                         testing::Combine(testing::ValuesIn(kDevices), testing::Values(at::kUInt16, at::kInt)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  c10::toString(std::get<1>(info.param));
                         });

class TokenGatherKernelTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(TokenGatherKernelTest, EqualsIndexingUnderEmulation) {
  for (const Case& c : kCases) {
    const at::Tensor tokens = random_tokens(c.N, GetParam()), starts = spread_starts(c);
    const at::Tensor inputs = at::empty({c.B, c.T}, at::kLong), targets = at::empty({c.B, c.T}, at::kLong);
    ops::cuda::token_gather(emulation::Launch(), inputs.fill_(-1), targets.fill_(-1), tokens, starts);
    EXPECT_TRUE(at::equal(inputs, windows(tokens, starts, c.T, 0))) << "N " << c.N << " B " << c.B << " T " << c.T;
    EXPECT_TRUE(at::equal(targets, windows(tokens, starts, c.T, 1))) << "N " << c.N << " B " << c.B << " T " << c.T;
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, TokenGatherKernelTest, testing::Values(at::kUInt16, at::kInt),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

// Zeros that take address space, and memory only where they are touched.
at::Tensor sparse_zeros(int64_t size, at::ScalarType type) {
  const size_t bytes = size * c10::elementSize(type);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return {};
  return at::from_blob(data, {size}, [data, bytes](void*) { munmap(data, bytes); }, at::TensorOptions(type));
}

TEST(TokenGather, ReadsBeyond32Bits) {
  const int64_t N = (int64_t{1} << 32) + 100, start = N - 4;
  const at::Tensor tokens = sparse_zeros(N, at::kUInt16);
  if (!tokens.defined()) GTEST_SKIP() << "this machine does not overcommit " << 2 * N << " bytes of address space";
  for (int64_t i = 0; i < 4; ++i) tokens.data_ptr<uint16_t>()[start + i] = static_cast<uint16_t>(i + 1);
  const at::Tensor starts = at::empty({1}, at::kLong).fill_(start);
  const at::Tensor expected = at::arange(1, 4, at::kLong).unsqueeze(0);

  const auto [inputs, targets] = ops::token_gather(tokens, starts, 3);
  EXPECT_TRUE(at::equal(inputs, expected));
  EXPECT_TRUE(at::equal(targets, expected.add(1)));
  ops::cuda::token_gather(emulation::Launch(), inputs.zero_(), targets.zero_(), tokens, starts);
  EXPECT_TRUE(at::equal(inputs, expected));
  EXPECT_TRUE(at::equal(targets, expected.add(1)));
}

TEST(TokenGather, WritesBeyond32Bits) {
  const int64_t B = 3'000'000, T = 1000;  // the last window begins at element 2,999,999,000
  const at::Tensor inputs = sparse_zeros(B * T, at::kLong), targets = sparse_zeros(B * T, at::kLong);
  if (!inputs.defined() || !targets.defined())
    GTEST_SKIP() << "this machine does not overcommit " << 16 * B * T << " bytes";
  const at::Tensor starts = sparse_zeros(B, at::kLong), tokens = at::arange(T + 2, at::kInt);
  starts[B - 1] = 1;
  emulation::Block block({static_cast<unsigned>(B)}, {256}, [&] {
    ops::cuda::token_gather_kernel(inputs.data_ptr<int64_t>(), targets.data_ptr<int64_t>(),
                                   tokens.const_data_ptr<int32_t>(), starts.const_data_ptr<int64_t>(), tokens.size(0),
                                   T);
  });
  block.run({static_cast<unsigned>(B - 1)});
  EXPECT_TRUE(at::equal(inputs.slice(0, (B - 1) * T), at::arange(1, T + 1, at::kLong)));
  EXPECT_TRUE(at::equal(targets.slice(0, (B - 1) * T), at::arange(2, T + 2, at::kLong)));
}

TEST(TokenGather, RefusesWhatDoesNotFit) {
  const at::Tensor tokens = at::arange(10, at::kInt), starts = at::arange(0, 4, 3, at::kLong);  // 0 and 3
  EXPECT_NO_THROW(ops::token_gather(tokens, starts, 6));
  EXPECT_THROW(ops::token_gather(tokens, starts, 7), c10::Error);  // the last target would be token 10
  EXPECT_THROW(ops::token_gather(tokens, starts.sub(1), 3), c10::Error);
  EXPECT_THROW(ops::token_gather(tokens.to(at::kLong), starts, 3), c10::Error);
  EXPECT_THROW(ops::token_gather(tokens.slice(0, 0, 10, 2), starts, 1), c10::Error);
  EXPECT_THROW(ops::token_gather(tokens, starts.to(at::kInt), 3), c10::Error);
  const at::Tensor two = at::empty({2, 3}, at::kLong);
  EXPECT_THROW(ops::token_gather_out(two, at::empty({2, 4}, at::kLong), tokens, starts), c10::Error);
  EXPECT_THROW(ops::token_gather_out(at::empty({1, 3}, at::kLong), two, tokens, starts), c10::Error);
  EXPECT_THROW(ops::token_gather_out(two, at::empty({3, 2}, at::kLong).t(), tokens, starts), c10::Error);
}

TEST(TokenGather, NoWindowsGiveNothing) {
  const auto [inputs, targets] = ops::token_gather(at::arange(10, at::kInt), at::empty({0}, at::kLong), 4);
  EXPECT_EQ(inputs.sizes(), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(targets.sizes(), (std::vector<int64_t>{0, 4}));
}

}  // namespace
}  // namespace gpt
