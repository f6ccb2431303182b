// Masks of dropout follow from the key of the update, the site and the place of an element, by every operator of ours that has
// dropout: so it does not matter how the samples of an update are cut into micro-batches.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "gpt/ops/activation.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/embedding.h"
#include "gpt/ops/norm.h"
#include "support/device_cases.h"
#include "support/dropout_at.h"
#include "support/emulated_kernels.h"
#include "support/parameter_of.h"

namespace gpt::ops {
namespace {

constexpr int64_t kSamples = 4, kLength = 10;

// Which elements of so many samples an operator keeps: (samples, length, ...) of its result and of the gradient.
struct Kept {
  at::Tensor forward, backward;
};

struct MaskedOperator {
  const char* name;
  int64_t columns;  // of a row, with whole vectors and without; of attention the width of a head
  Kept (*run)(const at::TensorOptions& options, int64_t samples, int64_t columns, const DropoutSpec& dropout);
};

void PrintTo(const MaskedOperator& of, std::ostream* out) { *out << of.name; }

at::Tensor is_kept(const at::Tensor& x) { return (x.detach() != 0).cpu(); }

// Each token has a row of its own in a table of ones, whose gradient then is the mask.
Kept of_embedding(const at::TensorOptions& options, int64_t samples, int64_t columns, const DropoutSpec& dropout) {
  const parameters::Parameter table =
      test::parameter_of(at::ones({samples * kLength, columns}, options.dtype(at::kFloat)),
                         {.compute = options.dtype().toScalarType()});
  const at::Tensor ids = at::arange(samples * kLength, options.dtype(at::kLong)).view({samples, kLength});
  const at::Tensor y = embedding(ids, table, {}, dropout);
  y.backward(at::ones_like(y.detach()));
  return {is_kept(y), is_kept(table.gradient()).view_as(y)};
}

// The sum of zeros and a branch of ones is the mask, and so is the branch's gradient where that of the sum is one.
Kept of_add_norm(const at::TensorOptions& options, int64_t samples, int64_t columns, const DropoutSpec& dropout) {
  const Normalization norm{Norm::rmsnorm,
                           1e-5,
                           parameters::Parameter(at::ones({columns}, options.dtype(at::kFloat))),
                           {}};
  const at::Tensor x = at::zeros({samples, kLength, columns}, options), branch = at::ones_like(x).requires_grad_();
  const at::Tensor sum = add_norm(norm, x, branch, dropout).sum;
  sum.backward(at::ones_like(x));
  return {is_kept(sum), is_kept(branch.grad())};
}

Kept of_gated(const at::TensorOptions& options, int64_t samples, int64_t columns, const DropoutSpec& dropout) {
  const at::Tensor gate = at::ones({samples, kLength, columns}, options), in = at::ones_like(gate).requires_grad_();
  const at::Tensor y = activate_gated(Activation::silu, gate, in, dropout);
  y.backward(at::ones_like(gate));
  return {is_kept(y), is_kept(in.grad())};
}

// Positions of several blocks. The values are the unit matrix, so that row i of the result has the weights of query i, and as the
// result's gradient it gives those of key i to the values. Queries do not see the keys behind them, which count as dropped.
constexpr int64_t kHeads = 2, kQueries = 70;

Kept of_attention(const at::TensorOptions& options, int64_t samples, int64_t columns, const DropoutSpec& dropout) {
  const at::Tensor unit = at::eye(kQueries, columns, options);
  const at::Tensor qkv = at::zeros({samples, kQueries, 3 * kHeads, columns}, options);
  qkv.narrow(2, 2 * kHeads, kHeads).copy_(unit.unsqueeze(1));
  const at::Tensor packed = qkv.flatten(2).requires_grad_();
  const at::Tensor y = attention(packed, {kHeads, kHeads, dropout});
  y.backward(unit.unsqueeze(1).expand({samples, kQueries, kHeads, columns}).flatten(2));
  const at::Tensor of_values = packed.grad().view_as(qkv).narrow(2, 2 * kHeads, kHeads);
  const auto weights = [](const at::Tensor& x) { return is_kept(x).narrow(3, 0, kQueries).transpose(1, 2); };
  return {weights(y.view({samples, kQueries, kHeads, columns})).contiguous(),
          weights(of_values).transpose(2, 3).contiguous()};
}

const MaskedOperator kMasked[] = {{"embedding", 128, of_embedding},
                                  {"embedding_with_a_rest", 333, of_embedding},
                                  {"norm", 128, of_add_norm},
                                  {"norm_with_a_rest", 333, of_add_norm},
                                  {"gated", 128, of_gated},
                                  {"gated_of_groups", 104, of_gated},
                                  {"gated_with_a_rest", 333, of_gated},
                                  {"attention", 72, of_attention}};

class DropoutTest : public testing::TestWithParam<std::tuple<DeviceCase, MaskedOperator, at::ScalarType>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(where());
    if (is_attention() && (!where().device.is_cpu() || where().is_emulated))
      GTEST_SKIP() << "attention is our own on a CPU alone";
    if (where().is_emulated) emulated_.emplace();
  }
  const DeviceCase& where() const { return std::get<0>(GetParam()); }
  const MaskedOperator& what() const { return std::get<1>(GetParam()); }
  bool is_attention() const { return what().run == of_attention; }

  DropoutSpec dropout(double probability, int64_t key, int64_t first_sample = 0, uint32_t site = 1) const {
    return test::dropout_at(where().device, probability, key, first_sample, site);
  }
  Kept run(int64_t samples, const DropoutSpec& spec) const {
    return what().run(at::dtype(std::get<2>(GetParam())).device(where().device), samples, what().columns, spec);
  }
  // What is not hidden anyway, as float64 (samples, rows, columns).
  at::Tensor rows(const at::Tensor& kept) const {
    const at::Tensor all = kept.to(at::kDouble);
    if (!is_attention()) return all;
    return all.narrow(2, 64, kQueries - 64).narrow(3, 0, 64).flatten(1, 2);  // every query here sees these keys
  }

  std::optional<test::EmulatedKernels> emulated_;
};

TEST_P(DropoutTest, AMaskIsTheSameHoweverTheSamplesAreCut) {
  const Kept whole = run(kSamples, dropout(0.3, 5));
  EXPECT_TRUE(whole.backward.equal(whole.forward));
  for (const int64_t cut : {1, 2, 3}) {
    const Kept first = run(cut, dropout(0.3, 5)), second = run(kSamples - cut, dropout(0.3, 5, cut));
    EXPECT_TRUE(at::cat({first.forward, second.forward}).equal(whole.forward)) << cut;
    EXPECT_TRUE(at::cat({first.backward, second.backward}).equal(whole.backward)) << cut;
  }
}

// Two masks of probability 1/2 that have nothing to do with each other agree in half of their n elements, with a standard deviation of
// 1 / (2 sqrt(n)). Six of these are exceeded by one of 500 million pairs.
TEST_P(DropoutTest, AnotherKeySiteSampleOrRowHasAnotherMask) {
  const auto agrees = [](const at::Tensor& a, const at::Tensor& b) {
    const double share = (a == b).to(at::kDouble).mean().item<double>();
    return std::abs(share - 0.5) > 3 / std::sqrt(static_cast<double>(a.numel()));
  };
  const at::Tensor mask = rows(run(kSamples, dropout(0.5, 5)).forward);
  EXPECT_TRUE(rows(run(kSamples, dropout(0.5, 5)).forward).equal(mask));
  for (const DropoutSpec& other : {dropout(0.5, 6), dropout(0.5, 5 + (int64_t{1} << 32)), dropout(0.5, 5, 0, 2),
                                   dropout(0.5, 5, kSamples), dropout(0.5, 5, 1)})
    EXPECT_FALSE(agrees(rows(run(kSamples, other).forward), mask)) << other.place << other.site;
  const at::Tensor all = mask.flatten(0, 1);
  for (int64_t i = 0; i < all.size(0); ++i) {
    for (int64_t j = 0; j < i; ++j) EXPECT_FALSE(agrees(all[i], all[j])) << i << " and " << j;
  }
}

TEST_P(DropoutTest, KeepsTheShareThatWasAskedFor) {
  for (const double probability : {0.1, 0.2, 0.5}) {
    const at::Tensor kept = rows(run(kSamples, dropout(probability, 7)).forward);
    // Five standard deviations of a binomial distribution.
    EXPECT_NEAR(kept.mean().item<double>(), 1 - probability,
                5 * std::sqrt(probability * (1 - probability) / static_cast<double>(kept.numel())));
  }
}

// Counters have 32 bits, numbers of rows more: 2^32 rows further on no mask comes again.
TEST_P(DropoutTest, RowsBeyondThirtyTwoBitsHaveMasksOfTheirOwn) {
  if (is_attention()) {
    EXPECT_NO_THROW((void)run(1, dropout(0.5, 5, (int64_t{1} << 31) - 1)));
    EXPECT_THROW((void)run(1, dropout(0.5, 5, int64_t{1} << 31)), c10::Error);
    return;
  }
  EXPECT_FALSE(run(1, dropout(0.5, 5)).forward.equal(run(1, dropout(0.5, 5, int64_t{1} << 32)).forward));
}

TEST_P(DropoutTest, RefusesAPlaceThatDoesNotFit) {
  const at::Tensor place = dropout(0.5, 1).place;
  for (const at::Tensor& wrong : {place.narrow(0, 0, 1), place.to(at::kInt), place.view({1, 2})})
    EXPECT_THROW((void)run(1, {0.5, 0, wrong}), c10::Error);
  EXPECT_NO_THROW((void)run(1, {0.0, 0, place.narrow(0, 0, 1)})) << "without dropout nothing is read";
}

INSTANTIATE_TEST_SUITE_P(Devices, DropoutTest,
                         testing::Combine(testing::ValuesIn(kDevicesAndEmulation), testing::ValuesIn(kMasked),
                                          testing::Values(at::kFloat, at::kBFloat16)),
                         [](const auto& test) {
                           return std::string(std::get<1>(test.param).name) + "_" +
                                  c10::toString(std::get<2>(test.param)) + "_" + std::get<0>(test.param).name;
                         });

// Philox4x32-10 once more, as its authors describe it.
std::array<uint32_t, 4> philox(uint64_t key, std::array<uint32_t, 4> x) {
  auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, low += 0x9E3779B9, high += 0xBB67AE85) {
    const uint64_t a = uint64_t{0xD2511F53} * x[0], b = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ low, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ high, static_cast<uint32_t>(a)};
  }
  return x;
}

// The counters that a run's masks follow from, which a resumed run relies on: (columns, row, its upper half or the matrix, site).
// A GPU's words are for eight neighbouring columns, and a CPU's for columns that lie as vectors take them.
bool keeps(bool is_gpu, uint64_t key, uint32_t column, uint64_t row, uint32_t matrix, uint32_t site, uint32_t least) {
  const uint32_t rest = column % 64, counter = is_gpu ? column / 8 : column / 64 * 8 + rest % 8;
  const std::array<uint32_t, 4> words =
      philox(key, {counter, static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32) + matrix, site});
  const uint32_t word = is_gpu ? words[column % 8 / 2] : words[rest / 16];
  const bool is_upper = is_gpu ? column % 2 == 1 : rest / 8 % 2 == 1;
  return (is_upper ? word >> 16 : word & 0xffff) < least;
}

TEST_P(DropoutTest, FollowsFromItsCounters) {
  constexpr uint64_t kKey = 0x0123456789abcdef;
  constexpr int64_t kFirst = (int64_t{1} << 32) / kLength + 5;
  constexpr uint32_t kSite = 9, kHalf = 32768;
  const bool is_gpu = !where().device.is_cpu() || where().is_emulated;
  const int64_t first = is_attention() ? 5 : kFirst;
  const at::Tensor kept = run(2, dropout(0.5, static_cast<int64_t>(kKey), first, kSite)).forward;
  const auto* is = kept.const_data_ptr<bool>();
  int64_t wrong = 0;
  if (is_attention()) {
    for (int64_t matrix = 0; matrix < 2 * kHeads; ++matrix) {
      for (int64_t query = 0; query < kQueries; ++query) {
        for (int64_t key = 0; key < kQueries; ++key) {
          const bool expected = key <= query && keeps(false, kKey, static_cast<uint32_t>(query), key,
                                                      static_cast<uint32_t>(first * kHeads + matrix), kSite, kHalf);
          wrong += *is++ != expected;
        }
      }
    }
  } else {
    for (int64_t row = first * kLength; row < (first + 2) * kLength; ++row) {
      for (int64_t c = 0; c < what().columns; ++c)
        wrong += *is++ != keeps(is_gpu, kKey, static_cast<uint32_t>(c), row, 0, kSite, kHalf);
    }
  }
  EXPECT_EQ(wrong, 0);
}

// Which site is which number must stay, or a resumed run has other masks.
TEST(DropoutSite, EveryDropoutOfAModelHasItsOwn) {
  std::set<uint32_t> sites{dropout_site(DropoutKind::embedding, -1)};
  EXPECT_EQ(*sites.begin(), 0);
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (const DropoutKind kind : {DropoutKind::attention, DropoutKind::attention_out, DropoutKind::mlp})
      EXPECT_TRUE(sites.insert(dropout_site(kind, layer)).second);
  }
  EXPECT_EQ(dropout_site(DropoutKind::mlp, 2), 15);
}

}  // namespace
}  // namespace gpt::ops
