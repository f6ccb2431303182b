// The classifier against ATen's operators in float64.
#include "gpt/ops/classifier.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpt/device/precision.h"
#include "gpt/products/product.h"
#include "src/ops/kernels.h"
#include "support/allocations.h"
#include "support/device_cases.h"
#include "support/emulated_kernels.h"
#include "support/parameter_of.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct ClassifierCase {
  const char* name;
  std::vector<int64_t> rows;  // the leading sizes of x
  int64_t C, V, Vp;
  double smoothing;
  int64_t chunk_rows;
  int64_t masked = 0;  // of every three rows

  ClassifierOptions options() const { return {V, smoothing, chunk_rows}; }
};

void PrintTo(const ClassifierCase& c, std::ostream* out) { *out << c.name; }

// Vocabularies below, of and beside whole vectors; chunks that divide the rows and chunks that do not.
const ClassifierCase kClassifierCases[] = {{"one_of_each", {1}, 1, 1, 1, 0, 0},
                                           {"tiny", {7}, 5, 3, 8, 0, 0},
                                           {"characters", {4, 12}, 33, 65, 128, 0, 0},
                                           {"smoothed_chunks_with_a_rest", {50}, 33, 65, 128, 0.1, 16},
                                           {"chunks_without_padding", {3, 20}, 24, 64, 64, 0, 20},
                                           {"odd_vocabulary", {23}, 16, 1003, 1024, 0.2, 1},
                                           {"odd_rows_apart", {19}, 16, 77, 83, 0.05, 6},
                                           {"masked_rows", {4, 12}, 33, 65, 128, 0.1, 10, 1},
                                           {"mostly_masked", {40}, 16, 64, 64, 0, 0, 2},
                                           {"nothing_but_masked_rows", {7}, 5, 3, 8, 0.1, 0, 3}};

// Inputs whose logits are of order one, exact in `type`.
struct Inputs {
  at::Tensor x, weight, targets;

  Inputs(const ClassifierCase& c, at::ScalarType type, at::Generator& generator) {
    std::vector<int64_t> sizes = c.rows;
    sizes.push_back(c.C);
    x = at::randn(sizes, generator).to(type).to(at::kFloat);
    weight = (at::randn({c.Vp, c.C}, generator) / std::sqrt(static_cast<double>(c.C))).to(type).to(at::kFloat);
    targets = at::randint(0, c.V, c.rows, generator, at::kLong);
    for (int64_t i = 0; i < targets.numel(); ++i)
      if (i % 3 < c.masked) targets.flatten()[i] = kMaskedTarget;
  }
};

// Loss and gradients in float64, and how far a result may be from them.
struct ClassifierReference {
  at::Tensor loss, x_gradient, head_gradient;  // times upstream; (N, C), (Vp, C)
  at::Tensor loss_bound, x_bound, head_bound;
  at::Tensor head_magnitude;  // above every sum that comes up on the way to the head's gradient

  ClassifierReference(const ClassifierCase& c, const Inputs& in, double upstream, at::ScalarType type) {
    const at::Tensor x = in.x.reshape({-1, c.C}).to(at::kDouble), weight = in.weight.to(at::kDouble);
    const int64_t N = x.size(0);
    const at::Tensor logits = x.matmul(weight.t()).narrow(1, 0, c.V), log_p = at::log_softmax(logits, 1);
    at::Tensor wanted = at::full_like(log_p, c.smoothing / static_cast<double>(c.V));
    const at::Tensor index = in.targets.reshape({-1, 1}).clamp_min(0),
                     counted = (in.targets.reshape({-1, 1}) != kMaskedTarget).to(at::kDouble);
    wanted.scatter_add_(1, index, at::full({N, 1}, 1 - c.smoothing, at::kDouble));
    const double share = upstream / static_cast<double>(N);
    const at::Tensor real = weight.narrow(0, 0, c.V), gradient = (log_p.exp() - wanted) * counted * share;
    loss = -(wanted * log_p * counted).sum() / N;
    x_gradient = gradient.matmul(real);
    head_gradient = at::zeros_like(weight);
    head_gradient.narrow(0, 0, c.V).copy_(gradient.t().matmul(x));
    set_bounds(c, x, real, (log_p.exp() + wanted) * counted * share, logits.abs().max().item<double>(), type);
  }

 private:
  // A logit is a sum of C products, and in 16 bits is rounded at most twice. The loss of a row moves by no more than twice
  // as much as its logits, and every probability by that part of itself; sums over the vocabulary and the roundings around them add
  // to it. A gradient of logits is a difference of two parts, whose sum is `parts`, and is rounded to its type; so is a product.
  void set_bounds(const ClassifierCase& c, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& parts,
                  double largest, at::ScalarType type) {
    const double last = type == at::kFloat ? 0 : 2 * test::unit_roundoff(type);
    const double of_logits = test::tolerance(at::kFloat, c.C, largest) + last * largest;
    const double in_sums = test::tolerance(at::kFloat, c.V + 16);
    loss_bound = at::scalar_tensor(2 * of_logits + in_sums * (1 + largest + std::log(c.V)), at::kDouble);
    const double each = 2 * of_logits + 2 * in_sums + 2 * last;
    x_bound = parts.matmul(weight.abs()) * each;
    head_magnitude = at::zeros({c.Vp, c.C}, at::kDouble);
    head_magnitude.narrow(0, 0, c.V).copy_(parts.t().matmul(x.abs()));
    head_bound = head_magnitude * (each + test::tolerance(at::kFloat, x.size(0)));
  }
};

void expect_within(const at::Tensor& result, const at::Tensor& expected, const at::Tensor& bound) {
  const at::Tensor error = (result.detach().cpu().to(at::kDouble).reshape(expected.sizes()) - expected).abs();
  EXPECT_TRUE((error <= bound).all().item<bool>())
      << (error / bound).nan_to_num(0).max().item<double>() << " times the bound";
}

class ClassifierTest : public testing::TestWithParam<std::tuple<DeviceCase, at::ScalarType, ClassifierCase>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(std::get<0>(GetParam()));
    const DeviceCase& where = std::get<0>(GetParam());
    if (type() == at::kHalf && !takes_float16(where)) GTEST_SKIP() << "the kernels of a CPU take no float16";
    if (where.is_emulated) emulated_.emplace();
  }
  at::Device device() const { return std::get<0>(GetParam()).device; }
  at::ScalarType type() const { return std::get<1>(GetParam()); }
  const ClassifierCase& what() const { return std::get<2>(GetParam()); }

  parameters::Parameter head(const Inputs& in) const {
    return parameters::Parameter(in.weight.to(device(), false, /*copy=*/true));
  }
  at::Tensor upstream() const { return at::full({}, kUpstream, at::TensorOptions(device()).dtype(at::kFloat)); }
  at::Tensor leaf(const Inputs& in, at::ScalarType of = at::kFloat) const {
    return in.x.to(device(), of, false, /*copy=*/true).requires_grad_();
  }
  // The loss under autocast to the type of this test, and the gradients.
  at::Tensor loss(const at::Tensor& x, const parameters::Parameter& head, const Inputs& in) const {
    at::Tensor result;
    {
      const device::Autocast autocast(device(), type());
      result = classifier_loss(x, head, in.targets.to(device()), what().options(), upstream());
    }
    result.backward(upstream());
    return result;
  }

  static constexpr double kUpstream = 0.375;
  at::Generator generator_ = at::detail::createCPUGenerator(1);
  std::optional<test::EmulatedKernels> emulated_;
};

TEST_P(ClassifierTest, EqualsFloat64) {
  const Inputs in(what(), type(), generator_);
  const ClassifierReference reference(what(), in, kUpstream, type());
  const at::Tensor x = leaf(in);
  const parameters::Parameter weight = head(in);
  const at::Tensor result = loss(x, weight, in);
  EXPECT_EQ(result.scalar_type(), at::kFloat);
  EXPECT_EQ(result.dim(), 0);
  expect_within(result, reference.loss, reference.loss_bound);
  ASSERT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  expect_within(x.grad(), reference.x_gradient, reference.x_bound);
  expect_within(weight.gradient(), reference.head_gradient, reference.head_bound);
  EXPECT_FALSE(weight.value().grad().defined()) << "the gradient is the parameter's own";
}

TEST_P(ClassifierTest, AddsToTheGradientThatIsThere) {
  const Inputs first(what(), type(), generator_), second(what(), type(), generator_);
  const parameters::Parameter weight = head(first);
  Inputs with_same_head = second;
  with_same_head.weight = first.weight;
  loss(leaf(first), weight, first);
  loss(leaf(second), weight, second);
  const ClassifierReference one(what(), first, kUpstream, type()), other(what(), with_same_head, kUpstream, type());
  expect_within(weight.gradient(), one.head_gradient + other.head_gradient, one.head_bound + other.head_bound);
}

TEST_P(ClassifierTest, TheLossAloneLeavesNoGradient) {
  const Inputs in(what(), type(), generator_);
  const ClassifierReference reference(what(), in, kUpstream, type());
  const parameters::Parameter weight = head(in);
  const at::NoGradGuard no_grad;
  const device::Autocast autocast(device(), type());
  const at::Tensor result = classifier_loss(in.x.to(device()), weight, in.targets.to(device()), what().options());
  expect_within(result, reference.loss, reference.loss_bound);
  EXPECT_FALSE(result.requires_grad());
  EXPECT_FALSE(weight.has_gradient());
}

// As the last normalization gives it under autocast on a GPU.
TEST_P(ClassifierTest, TakesAnInputOf16BitsAndGivesItsGradientInThem) {
  if (type() == at::kFloat) GTEST_SKIP() << "about autocast";
  const Inputs in(what(), type(), generator_);
  const ClassifierReference reference(what(), in, kUpstream, type());
  const at::Tensor x = leaf(in, type());
  loss(x, head(in), in);
  EXPECT_EQ(x.grad().scalar_type(), type());
  expect_within(x.grad(), reference.x_gradient, reference.x_bound);
}

// With a head that has a master and a gradient of float32 or neither: the gradient is a sum over chunks and micro-batches, which 16 bits
// round every time.
TEST_P(ClassifierTest, EqualsFloat64EndToEnd) {
  if (type() == at::kFloat) GTEST_SKIP() << "about 16 bits";
  for (const bool has_master : {true, false}) {
    const at::ScalarType gradient = has_master ? at::kFloat : type();
    SCOPED_TRACE(testing::Message() << (has_master ? "with" : "without") << " a master");
    const Inputs first(what(), type(), generator_);
    const parameters::Parameter weight =
        test::parameter_of(first.weight.to(device(), false, /*copy=*/true),
                           {.compute = type(), .has_master = has_master, .gradient = gradient});
    at::Tensor expected, bound, magnitude;
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      Inputs in = micro_batch == 0 ? first : Inputs(what(), type(), generator_);
      in.weight = first.weight;
      const ClassifierReference reference(what(), in, kUpstream, type());
      const at::Tensor x = leaf(in, type());
      const at::Tensor loss = classifier_loss(x, weight, in.targets.to(device()), what().options(), upstream());
      loss.backward(upstream());
      EXPECT_EQ(loss.scalar_type(), at::kFloat);
      expect_within(loss, reference.loss, reference.loss_bound);
      EXPECT_EQ(x.grad().scalar_type(), type());
      expect_within(x.grad(), reference.x_gradient, reference.x_bound);
      const bool is_first = micro_batch == 0;
      expected = is_first ? reference.head_gradient : expected + reference.head_gradient;
      bound = is_first ? reference.head_bound : bound + reference.head_bound;
      magnitude = is_first ? reference.head_magnitude : magnitude + reference.head_magnitude;
    }
    // A chunk's product is rounded, and so is what it is added to.
    const int64_t rows = first.targets.numel(), chunks = what().chunk_rows ? 1 + rows / what().chunk_rows : 1;
    const double in_chunks = gradient == at::kFloat ? 0 : test::tolerance(gradient, 2 * 2 * chunks);
    EXPECT_EQ(weight.gradient().scalar_type(), gradient);
    expect_within(weight.gradient(), expected, bound + in_chunks * magnitude);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ClassifierTest,
                         testing::Combine(testing::ValuesIn(kDevicesAndEmulation),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::ValuesIn(kClassifierCases)),
                         [](const auto& test) {
                           return std::string(std::get<2>(test.param).name) + "_" +
                                  c10::toString(std::get<1>(test.param)) + "_" + std::get<0>(test.param).name;
                         });

class ClassifierOnDevice : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (GetParam().is_emulated) emulated_.emplace();
  }
  at::Tensor tokens(const std::vector<int64_t>& of) const { return at::tensor(of, at::kLong).to(device()); }
  at::Tensor one() const { return full({}, 1); }
  std::optional<test::EmulatedKernels> emulated_;
};

// Logits of 10,000 and -10,000: row 0 is sure and right, row 1 wrong, row 2 undecided between two.
TEST_P(ClassifierOnDevice, ExtremeLogitsDoNotOverflow) {
  const at::Tensor x = at::tensor({1.0, 0.0, -1.0, 0.0, 0.0, 1.0}).to(device(), at::kFloat).view({3, 2});
  const at::Tensor leaf = x.detach().requires_grad_();
  const parameters::Parameter head(at::tensor({1e4, 0.0, -1e4, 1e4, -1e4, 1e4}).to(device(), at::kFloat).view({3, 2}));
  const at::Tensor loss = classifier_loss(leaf, head, tokens({0, 0, 1}), {3}, one());
  const double expected = (0 + (2e4 + std::log(2.0)) + std::log(2.0)) / 3;
  EXPECT_NEAR(loss.item<double>(), expected, test::tolerance(at::kFloat, 8, expected));
  loss.backward();
  EXPECT_TRUE(head.gradient().isfinite().all().item<bool>());
  EXPECT_EQ(leaf.grad()[0].abs().max().item<double>(), 0);
  EXPECT_NEAR(leaf.grad()[1][0].item<double>(), -2e4 / 3, test::tolerance(at::kFloat, 8, 2e4 / 3));
}

TEST_P(ClassifierOnDevice, ValuesThatAreNotFiniteStayVisible) {
  const at::Tensor x = full({2, 20}, 1);
  x[0].fill_(std::nan(""));
  x.requires_grad_();
  const parameters::Parameter head(full({40, 20}, 0.1));
  const at::Tensor loss = classifier_loss(x, head, tokens({1, 1}), {33}, one());
  EXPECT_TRUE(std::isnan(loss.item<double>()));
  loss.backward();
  EXPECT_TRUE(x.grad()[0].isnan().all().item<bool>());
  EXPECT_TRUE(x.grad()[1].isfinite().all().item<bool>());
}

// What lies in the padding of the head changes nothing, however large it is.
TEST_P(ClassifierOnDevice, ThePaddingTakesNoPart) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const at::Tensor x = at::randn({5, 8}, generator), weight = at::randn({24, 8}, generator);
  const auto run = [&](double padding) {
    at::Tensor filled = weight.clone();
    filled.narrow(0, 19, 5).fill_(padding);
    const parameters::Parameter head(filled.to(device()));
    const at::Tensor loss = classifier_loss(x.to(device()), head, tokens({1, 2, 3, 4, 18}), {19, 0.1}, one());
    EXPECT_EQ(head.gradient().narrow(0, 19, 5).abs().max().item<double>(), 0);
    return std::pair(loss.detach(), head.gradient());
  };
  const auto none = run(0), large = run(1e4);
  EXPECT_TRUE(none.first.equal(large.first));
  EXPECT_TRUE(none.second.equal(large.second));
}

TEST_P(ClassifierOnDevice, TakesStridedInputs) {
  const at::Tensor storage = at::randn({6, 3, 10}).to(device()), weight = at::randn({16, 10}).to(device());
  const at::Tensor targets = at::randint(0, 16, {2, 6}, at::kLong).to(device()).t().select(1, 1);
  const auto run = [&](const at::Tensor& x, const at::Tensor& targets) {
    const at::Tensor leaf = x.detach().requires_grad_();
    const at::Tensor loss = classifier_loss(leaf, parameters::Parameter(weight.clone()), targets, {16, 0, 4}, one());
    loss.backward();
    return std::pair(loss.detach(), leaf.grad());
  };
  const at::Tensor x = storage.select(1, 1);  // rows 30 apart
  const auto strided = run(x, targets), packed = run(x.contiguous(), targets.contiguous());
  const double bound = test::tolerance(at::kFloat, 64, 10);
  EXPECT_NEAR(strided.first.item<double>(), packed.first.item<double>(), bound);
  EXPECT_LE((strided.second - packed.second).abs().max().item<double>(), bound);
}

INSTANTIATE_TEST_SUITE_P(Devices, ClassifierOnDevice, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

// The rows alone: whether a product depends on the number of threads is up to its library.
TEST(ClassifierOnCpu, TheNumberOfThreadsChangesNothing) {
  const ClassifierOptions options{999, 0.1};
  const at::Tensor logits = at::randn({301, 1024}), targets = at::randint(0, 999, {301}, at::kLong);
  const int threads = at::get_num_threads();
  const auto run = [&](int count) {
    at::set_num_threads(count);
    const at::Tensor gradients = logits.clone(), losses = at::empty({301});
    cpu::cross_entropy(options, gradients, targets, losses, at::ones({}));
    return std::pair(gradients, losses);
  };
  const auto one = run(1), two = run(2), three = run(3);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.first.equal(two.first) && one.first.equal(three.first));
  EXPECT_TRUE(one.second.equal(two.second) && one.second.equal(three.second));
}

TEST(ClassifierChunks, AreEqualWithinALimitThatWasSetAndOnACpu) {
  constexpr int64_t kRows = 65536, kCpu = 0, kH100 = 132;
  const auto rows = [](at::ScalarType type, int64_t limit, int64_t multiprocessors) {
    return classifier_chunk_rows(kRows, {50304, 768}, type, limit, multiprocessors);
  };
  EXPECT_EQ(rows(at::kFloat, 0, kCpu), 256);
  EXPECT_EQ(rows(at::kBFloat16, 20000, kH100), 16384);
  EXPECT_EQ(rows(at::kBFloat16, 5000, kH100), 4682) << "14 chunks, whatever the tiles";
  EXPECT_EQ(rows(at::kBFloat16, 100000, kH100), kRows);
}

// Tiles of 128 rows and 256 columns; 600 MB hold 5,963 rows of 50,304 logits in 16 bits, or 46 tiles, and 2,981 in 32, or 23.
TEST(ClassifierChunks, HaveTheFewestWavesOfTilesOnAGpu) {
  struct Case {
    const char* name;
    int64_t rows, columns, multiprocessors;
    at::ScalarType type;
    int64_t expected;
  };
  const Case cases[] = {
      // 3 columns of tiles: 6 chunks of 129 tiles, where 5,888 rows would have 138, which are two waves.
      {"124M", 32 * 1024, 768, 132, at::kBFloat16, 5504},
      {"124M on an A100: 36 rows of tiles are a wave, and 8 chunks need 32", 32 * 1024, 768, 108, at::kBFloat16, 4096},
      {"124M in float32: 23 chunks of a wave", 65536, 768, 132, at::kFloat, 2944},
      // 4 columns: 33 rows of tiles are a wave, so 256 take 8, for which 32 suffice.
      {"350M", 32 * 1024, 1024, 132, at::kBFloat16, 4096},
      // 5 columns: 26 rows of tiles are a wave, so 64 take 3, for which 22 suffice.
      {"774M", 8 * 1024, 1280, 132, at::kBFloat16, 2816},
      // 7 columns: 18 rows of tiles are a wave, so 64 take 4, for which 16 suffice.
      {"1558M", 8 * 1024, 1600, 132, at::kBFloat16, 2048},
      // 16 columns: 8 rows of tiles are a wave, but 1,024 rows would be too few; 16 take two.
      {"7B", 8 * 1024, 4096, 132, at::kBFloat16, 2048},
      {"one chunk", 5 * 1024, 768, 132, at::kBFloat16, 5120},
      {"one incomplete tile", 100, 768, 132, at::kBFloat16, 100},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(classifier_chunk_rows(c.rows, {50304, c.columns}, c.type, 0, c.multiprocessors), c.expected) << c.name;
  }
  EXPECT_EQ(classifier_chunk_rows(65536, {128, 384}, at::kBFloat16, 0, 132), 65536) << "characters";
  EXPECT_EQ(classifier_chunk_rows(8192, {2'000'000, 768}, at::kFloat, 0, 132), 256) << "the least";
}

TEST(ClassifierOnCpu, NoMoreThanOneChunkOfLogitsExists) {
  constexpr int64_t kRows = 10000, kVocabulary = 2048, kChunk = 100, kBytes = 4;
  const at::Tensor x = at::randn({kRows, 8}).requires_grad_(), targets = at::randint(0, 500, {kRows}, at::kLong);
  const parameters::Parameter head(at::randn({kVocabulary, 8}));
  const auto peak = [&](int64_t chunk_rows) {
    const test::Allocations allocations;
    classifier_loss(x, head, targets, {500, 0.1, chunk_rows}, at::ones({})).backward();
    return allocations.peak();
  };
  EXPECT_GE(peak(kRows), kRows * kVocabulary * kBytes);
  const int64_t gradients = (kRows + kVocabulary) * 8 * kBytes, losses = kRows * kBytes;
  const double of_products = cpu::product_workspace(at::kFloat);
  EXPECT_LE(peak(kChunk), kChunk * kVocabulary * kBytes + gradients + losses + of_products + 4096);
}

TEST(ClassifierArguments, ThatDoNotFitAreRefused) {
  const at::Tensor x = at::randn({4, 8}).requires_grad_(), upstream = at::ones({});
  const parameters::Parameter head(at::randn({16, 8}));
  const auto refused = [&](const at::Tensor& x, const std::vector<int64_t>& targets, const ClassifierOptions& options,
                           const at::Tensor& upstream) {
    EXPECT_THROW(classifier_loss(x, head, at::tensor(targets, at::kLong), options, upstream), c10::Error);
    EXPECT_FALSE(head.has_gradient());
  };
  refused(x, {0, 1, 2, 10}, {10}, upstream);  // a target in the padding
  refused(x, {0, 1, 2, -2}, {10}, upstream);
  refused(x, {0, 1, 2}, {10}, upstream);
  refused(x, {0, 1, 2, 3}, {17}, upstream);
  refused(x, {0, 1, 2, 3}, {10, 1.0}, upstream);
  refused(x, {0, 1, 2, 3}, {10}, at::ones({1}));
  refused(at::randn({4, 7}), {0, 1, 2, 3}, {10}, upstream);
  refused(x.to(at::kBFloat16), {0, 1, 2, 3}, {10}, upstream);  // without autocast
}

TEST(ClassifierArguments, WithoutAnUpstreamItIsOne) {
  const at::Tensor x = at::randn({4, 8}).requires_grad_(), targets = at::zeros({4}, at::kLong);
  const parameters::Parameter head(at::randn({16, 8})), same(head.value().detach().clone());
  classifier_loss(x, head, targets, {16}).backward();
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad().reset();
  classifier_loss(x, same, targets, {16}, at::ones({})).backward();
  EXPECT_TRUE(at::equal(gradient, x.grad()));
  EXPECT_TRUE(at::equal(head.gradient(), same.gradient()));
  EXPECT_THROW(classifier_loss(x, head, targets, {16}).backward(at::full({}, 0.5)), c10::Error);
}

TEST(ClassifierArguments, AnUpstreamThatTheBackwardPassDoesNotGetIsReported) {
  const at::Tensor x = at::randn({4, 8}).requires_grad_(), targets = at::zeros({4}, at::kLong);
  const parameters::Parameter head(at::randn({16, 8}));
  at::Tensor upstream = at::full({}, 0.5);
  const at::Tensor loss = classifier_loss(x, head, targets, {16}, upstream);
  upstream.fill_(0.25);  // the caller's tensor is no part of it
  EXPECT_THROW(loss.backward(at::full({}, 0.25)), c10::Error);
  EXPECT_NO_THROW(classifier_loss(x, head, targets, {16}, upstream).backward(at::full({}, 0.25)));
}

}  // namespace
}  // namespace gpt::ops
