// Our CUDA kernels at the sizes of real runs: 524,288 tokens, up to 17 billion values and 132 multiprocessors. The first and the last of
// their blocks run under emulation, on memory of which a page is there once it is touched. A grid that a GPU refuses, or an index that
// does not fit into 32 bits, shows there; what the last block writes is compared with the CPU's kernel. And kernels that are used where
// the sizes and the device suit them, against those for all others.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>
#include <set>

#include "gpt/ops/adamw.h"
#include "gpt/ops/muon.h"
#include "gpt/ops/rotary.h"
#include "src/ops/kernels.h"
#include "support/cuda_emulation.h"  // before the kernels, which it compiles for the host
#include "support/long_test.h"

#include "src/ops/cuda/kernels.cuh"

namespace gpt::ops {
namespace {

constexpr int64_t kSequences = 512, kLength = 1024, kTokens = kSequences * kLength;
constexpr int64_t kParameters = 7'000'000'000;  // a multiple of kParameterAlignment
constexpr int64_t kTail = 8;                    // values at the end of a tensor, which the last block writes

// An H100. Instead of the first block, the one runs that has the last of `rows`, where each has every n-th.
struct LaunchOfEnds {
  int64_t rows = 1;

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), int64_t blocks, unsigned threads,
                  const Arguments&... arguments) const {
    with_shared_memory(0, kernel, blocks, threads, arguments...);
  }

  template <class... Parameters, class... Arguments>
  void with_shared_memory(int64_t bytes, void (*kernel)(Parameters...), int64_t blocks, unsigned threads,
                          const Arguments&... arguments) const {
    ASSERT_GT(blocks, 0);
    ASSERT_LE(blocks, INT32_MAX);
    ASSERT_LE(threads, 1024);
    ASSERT_EQ(threads % 32, 0);
    const emulation::DynamicSharedMemory memory(bytes);
    emulation::Block runner({static_cast<unsigned>(blocks)}, {threads}, [&] { kernel(arguments...); });
    for (const int64_t block : std::set<int64_t>{(rows - 1) % blocks, blocks - 1})
      runner.run({static_cast<unsigned>(block)});
    memory.check();
  }

  template <class Kernel>
  static int64_t blocks_at_once(const Kernel& /*unused*/, unsigned threads) {
    constexpr int64_t kThreadsAtOnce = 2048;
    return kThreadsAtOnce / threads * multiprocessors();
  }
  static cuda::BlockLimits block_limits() { return emulation::kLimitsOfH100; }
  static int64_t multiprocessors() { return 132; }
};

// Zeros. The tensor ends where its memory ends, but for less than 16 bytes, so that an access beyond it is a fault.
at::Tensor huge(at::IntArrayRef sizes, at::ScalarType type) {
  constexpr size_t kPage = 4096, kAligned = 16;
  const size_t count = std::accumulate(sizes.begin(), sizes.end(), size_t{1}, std::multiplies<>()),
               bytes = count * c10::elementSize(type), whole = (bytes + kPage - 1) / kPage * kPage;
  void* const memory =
      mmap(nullptr, whole + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "no addresses for ", bytes, " bytes");
  auto* const begin = static_cast<char*>(memory);
  TORCH_CHECK(mprotect(begin + whole, kPage, PROT_NONE) == 0);
  return at::from_blob(
      begin + (whole - bytes) / kAligned * kAligned, sizes,
      [memory, whole](void* /*unused*/) { munmap(memory, whole + kPage); }, at::TensorOptions(type));
}

at::Tensor row(const at::Tensor& x) { return x.select(0, x.size(0) - 1); }
at::Tensor tail(const at::Tensor& x) { return x.view(-1).slice(0, x.numel() - kTail); }

void expect_same_tail(const at::Tensor& actual, const at::Tensor& expected) {
  const double tolerance = actual.scalar_type() == at::kFloat ? 1e-5 : 1e-2;  // of values about 1
  EXPECT_GT(tail(expected).abs().max().item<double>(), 0) << "nothing would show";
  const double error = (tail(actual).to(at::kDouble) - tail(expected).to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(error, tolerance) << tail(actual) << tail(expected);
}

// (rows, C), of which the last row is random, and that row by itself.
std::pair<at::Tensor, at::Tensor> random_last_row(int64_t rows, int64_t C, at::ScalarType type) {
  const at::Tensor all = huge({rows, C}, type);
  row(all).copy_(at::randn({C}));
  return {all, row(all).clone().unsqueeze(0)};
}

Dropout no_dropout() { return {}; }

class LaunchSizes : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (GetParam() > 1600) SKIP_UNLESS_ALL_TESTS();
  }
};
INSTANTIATE_TEST_SUITE_P(Widths, LaunchSizes, testing::Values(100, 768, 1600, 8192));

TEST_P(LaunchSizes, Activation) {
  const int64_t C = 4 * GetParam();
  const auto [x, x_row] = random_last_row(kTokens, C, at::kBFloat16);
  const auto [in, in_row] = random_last_row(kTokens, C, at::kBFloat16);
  const auto [dy, dy_row] = random_last_row(kTokens, C, at::kBFloat16);
  const at::Tensor y = huge({kTokens, C}, at::kBFloat16), dx = huge({kTokens, C}, at::kBFloat16),
                   din = huge({kTokens, C}, at::kBFloat16);
  const at::Tensor y_row = at::empty_like(x_row), dx_row = at::empty_like(x_row), din_row = at::empty_like(x_row);
  cuda::activation(LaunchOfEnds(), Activation::silu, no_dropout(), x, in, y);
  cpu::activation(Activation::silu, no_dropout(), x_row, in_row, y_row);
  expect_same_tail(y, y_row);
  (void)cuda::activation_backward(LaunchOfEnds(), Activation::silu, no_dropout(), x, in, dy, dx, din, false);
  (void)cpu::activation_backward(Activation::silu, no_dropout(), x_row, in_row, dy_row, dx_row, din_row, false);
  expect_same_tail(dx, dx_row);
  expect_same_tail(din, din_row);
  (void)cuda::activation_backward(LaunchOfEnds{kTokens}, Activation::silu, no_dropout(), x, in, dy, dx, din, true);
}

TEST_P(LaunchSizes, Norm) {
  const int64_t C = GetParam(), rows = std::min<int64_t>(kTokens, INT32_MAX / C + 1000);
  const Normalization norm{Norm::layernorm, 1e-5, parameters::Parameter(at::ones({C})),
                           parameters::Parameter(at::zeros({C}))};
  const auto [x, x_row] = random_last_row(rows, C, at::kFloat);
  const auto [gradient, gradient_row] = random_last_row(rows, C, at::kFloat);
  const at::Tensor normed = huge({rows, C}, at::kFloat), statistics = huge({rows, 2}, at::kFloat),
                   dx = huge({rows, C}, at::kFloat);
  const at::Tensor normed_row = at::empty_like(x_row), statistics_row = at::empty({1, 2}),
                   dx_row = at::empty_like(x_row);
  cuda::add_norm(LaunchOfEnds(), norm, no_dropout(), x, {}, x, normed, statistics);
  cpu::add_norm(norm, no_dropout(), x_row, {}, x_row, normed_row, statistics_row);
  expect_same_tail(normed, normed_row);
  (void)cuda::add_norm_backward(LaunchOfEnds{rows}, norm, no_dropout(), x, statistics, {}, gradient, dx, {}, false);
  (void)cpu::add_norm_backward(norm, no_dropout(), x_row, statistics_row, {}, gradient_row, dx_row, {}, false);
  expect_same_tail(dx, dx_row);
}

TEST_P(LaunchSizes, Embedding) {
  constexpr int64_t kVocabulary = 200'064;
  const int64_t C = GetParam();
  const at::Tensor ids = at::randint(kVocabulary - 1, {kSequences, kLength}, at::kLong);
  ids.view(-1)[kTokens - 1] = kVocabulary - 1;
  const auto [table, last] = random_last_row(kVocabulary, C, at::kBFloat16);
  const auto [gradient, of_last] = random_last_row(kTokens, C, at::kBFloat16);
  const at::Tensor y = huge({kTokens, C}, at::kBFloat16), of_table = huge({kVocabulary, C}, at::kFloat),
                   of_positions = huge({kLength, C}, at::kFloat);
  cuda::embedding(LaunchOfEnds(), no_dropout(), ids, table, {}, y);
  expect_same_tail(y, last);
  cuda::embedding_backward(LaunchOfEnds(), no_dropout(), ids, gradient, of_table, of_positions);
  expect_same_tail(of_table, of_last);
  expect_same_tail(of_positions, of_last);
}

TEST_P(LaunchSizes, Heads) {
  constexpr int64_t kHeadDim = 128;
  const int64_t heads = std::max<int64_t>(1, GetParam() / kHeadDim);
  const auto rotary = rotary_tables(kLength, kHeadDim, 10'000, at::kCPU);
  const auto shape = [&](int64_t sequences, int64_t count) {
    return std::vector<int64_t>{sequences, kLength, count, kHeadDim};
  };
  const at::Tensor q = huge(shape(kSequences, heads), at::kBFloat16), k = huge(shape(kSequences, heads), at::kBFloat16),
                   v = huge(shape(kSequences, heads), at::kBFloat16),
                   packed = huge(shape(kSequences, 3 * heads), at::kBFloat16),
                   expected = at::zeros(shape(1, 3 * heads), at::kBFloat16);
  for (const at::Tensor& x : {q, k, v}) row(row(x)).copy_(at::randn({heads, kHeadDim}));
  const auto last = [](const at::Tensor& x) { return row(x).unsqueeze(0).clone(); };
  (void)cpu::join_heads({.rotary = rotary}, last(q), last(k), last(v), expected);
  (void)cuda::join_heads(LaunchOfEnds(), {.rotary = rotary}, q, k, v, packed);
  expect_same_tail(packed, expected);
  (void)cuda::join_heads(LaunchOfEnds{kTokens}, {.direction = -1, .rotary = rotary, .sums_rows = true}, q, k, v,
                         packed);
  const HeadNorms norms{parameters::Parameter(at::ones({kHeadDim})), parameters::Parameter(at::ones({kHeadDim})), 1e-6};
  const at::Tensor raw = huge(shape(kSequences, 3 * heads), at::kBFloat16);
  (void)cuda::join_heads(LaunchOfEnds{kTokens}, {.rotary = rotary, .norms = norms}, q, k, v, packed);
  (void)cuda::join_heads(LaunchOfEnds{kTokens}, {.direction = -1, .rotary = rotary, .norms = norms, .raw = raw}, q, k,
                         v, packed);
}

TEST_P(LaunchSizes, SumsOfRows) {
  const int64_t C = 3 * GetParam(), parts = cuda::row_parts(kTokens, cuda::column_blocks(C, cuda::kSumThreads),
                                                            LaunchOfEnds::multiprocessors());
  const at::Tensor x = huge({kTokens, C}, at::kBFloat16),
                   last = x.select(0, kTokens / parts * parts - 1);  // which the last block sums
  last.copy_(at::randn({C}));
  const at::Tensor sums = cuda::sum_rows(LaunchOfEnds(), x);
  ASSERT_EQ(sums.size(0), parts);
  expect_same_tail(sums, last.to(at::kFloat));
}

TEST(LaunchSizesOfAll, CrossEntropy) {
  constexpr int64_t kRows = 65'536;
  for (const int64_t vocabulary : {50'257, 200'000}) {
    const int64_t padded = (vocabulary + 63) / 64 * 64;
    const ClassifierOptions options{.vocabulary = vocabulary};
    const auto [logits, logits_row] = random_last_row(kRows, padded, at::kBFloat16);
    const at::Tensor targets = at::full({kRows}, vocabulary - 1, at::kLong), losses = huge({kRows}, at::kFloat),
                     loss = at::empty({1}), one = at::ones({});
    cuda::cross_entropy(LaunchOfEnds(), options, logits, targets, losses, one);
    cpu::cross_entropy(options, logits_row, targets.slice(0, 0, 1), loss, one);
    EXPECT_NEAR(losses[kRows - 1].item<double>(), loss.item<double>(), 1e-4) << vocabulary;
    const int64_t padding = padded - vocabulary;  // the target is the last value before it
    const auto of_target = [&](const at::Tensor& x) { return x.view(-1)[x.numel() - 1 - padding].item<double>(); };
    EXPECT_NEAR(of_target(logits), of_target(logits_row), 1e-2) << vocabulary;
    EXPECT_LT(of_target(logits), -0.5) << vocabulary;
  }
}

TEST(LaunchSizesOfAll, Distillation) {
  constexpr int64_t kRows = 65'536;
  for (const int64_t vocabulary : {50'257, 200'000}) {
    const int64_t padded = (vocabulary + 63) / 64 * 64;
    ClassifierOptions options{.vocabulary = vocabulary};
    options.teacher.weight = 0.5, options.teacher.temperature = 2;
    const auto [logits, logits_row] = random_last_row(kRows, padded, at::kBFloat16);
    const auto [teacher, teacher_row] = random_last_row(kRows, padded, at::kBFloat16);
    const at::Tensor targets = at::full({kRows}, vocabulary - 1, at::kLong), losses = huge({kRows}, at::kFloat),
                     loss = at::empty({1}), one = at::ones({});
    cuda::distillation(LaunchOfEnds(), options, logits, teacher, targets, losses, one);
    cpu::distillation(options, logits_row, teacher_row, targets.slice(0, 0, 1), loss, one);
    EXPECT_NEAR(losses[kRows - 1].item<double>(), loss.item<double>(), 1e-4) << vocabulary;
    EXPECT_GT(loss.item<double>(), 1) << vocabulary;
    // The target's gradient is thousands of times as large as that of any other value.
    const auto of_target = [&](const at::Tensor& x) { return row(x)[vocabulary - 1].item<double>(); };
    const auto of_others = [&](const at::Tensor& x) { return row(x).slice(0, 0, vocabulary - 1).to(at::kFloat); };
    EXPECT_NEAR(of_target(logits), of_target(logits_row), 1e-2) << vocabulary;
    const double largest = of_others(logits_row).abs().max().item<double>();
    EXPECT_LE((of_others(logits) - of_others(logits_row)).abs().max().item<double>(), 1e-2 * largest) << vocabulary;
  }
}

TEST(KeptRows, FitTwiceOnAMultiprocessor) {
  using cuda::BlockLimits, cuda::may_keep;
  const BlockLimits h100 = emulation::kLimitsOfH100, a100{2048, 164 << 10, 163 << 10, 1 << 10},
                    rtx4090{1536, 100 << 10, 99 << 10, 1 << 10}, t4{1024, 64 << 10, 64 << 10, 0},
                    small_blocks{2048, 228 << 10, 48 << 10, 0};
  constexpr int64_t k16Bits = 2, k32Bits = 4, kFew = 128, kMost = 1024;
  EXPECT_TRUE(may_keep(50'304 * k16Bits, kMost, h100)) << "GPT-2's logits";
  EXPECT_FALSE(may_keep(50'304 * k32Bits, kMost, h100));
  EXPECT_FALSE(may_keep(50'304 * k16Bits, kMost, a100));
  EXPECT_TRUE(may_keep(32'000 * k16Bits, kMost, a100));
  EXPECT_FALSE(may_keep(8'192 * k16Bits, kMost, rtx4090)) << "one block has more than half of the threads";
  EXPECT_TRUE(may_keep(128 * k32Bits, kFew, t4)) << "characters";
  EXPECT_FALSE(may_keep(48 << 10, kMost, small_blocks)) << "no more than a block may have";
  for (const BlockLimits& limits : {h100, a100, rtx4090, t4}) {
    int64_t most = 0;
    while (may_keep(most + 16, kFew, limits)) most += 16;
    constexpr int64_t kSums = sizeof(cuda::Sums) * 32 + sizeof(float) * 32, kUnit = 128;  // allocated in units
    const int64_t of_block = (most + kSums + kUnit - 1) / kUnit * kUnit + limits.reserved;
    EXPECT_LE(2 * of_block, limits.shared_memory);
    EXPECT_GT(2 * (of_block + 512), limits.shared_memory) << "hardly less than there is";
  }
}

// Has no shared memory to keep a row in, or says how much a kernel asked for.
struct LaunchOfRows : emulation::Launch {
  cuda::BlockLimits limits;
  int64_t* asked;

  template <class... Arguments>
  void with_shared_memory(int64_t bytes, const Arguments&... arguments) const {
    *asked = bytes;
    emulation::Launch::with_shared_memory(bytes, arguments...);
  }
  cuda::BlockLimits block_limits() const { return limits; }
};

at::Tensor bits_of(const at::Tensor& x) { return x.view(x.scalar_type() == at::kFloat ? at::kInt : at::kShort); }

// Vocabularies below, of and beside whole groups, with and without padding; more groups than a block has threads; a row that is not finite.
TEST(KeptRows, GiveTheSameBitsAsRowsInPlace) {
  struct Case {
    int64_t vocabulary, padded;
  };
  for (const auto& [vocabulary, padded] :
       std::vector<Case>{{1, 8}, {64, 64}, {65, 128}, {1003, 1024}, {20'001, 20'032}}) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const double smoothing : {0.0, 0.1}) {
        for (const at::Tensor& scale : {at::full({}, 0.375), at::Tensor()}) {
          SCOPED_TRACE(testing::Message() << vocabulary << c10::toString(type) << smoothing << scale.defined());
          const ClassifierOptions options{.vocabulary = vocabulary, .label_smoothing = smoothing};
          const at::Tensor logits = (3 * at::randn({3, padded})).to(type),
                           targets = at::randint(vocabulary, {3}, at::kLong);
          logits[1][vocabulary - 1].fill_(-INFINITY);
          logits[2].fill_(NAN);
          const auto run = [&](const cuda::BlockLimits& limits, int64_t bytes) {
            const at::Tensor of = logits.clone(), losses = at::empty({3});
            int64_t asked = 0;
            cuda::cross_entropy(LaunchOfRows{{}, limits, &asked}, options, of, targets, losses, scale);
            EXPECT_EQ(asked, bytes);
            return std::pair(bits_of(losses), bits_of(of));
          };
          const auto kept = run(emulation::kLimitsOfH100, logits.nbytes() / 3), in_place = run({}, 0);
          EXPECT_TRUE(kept.first.equal(in_place.first));
          EXPECT_TRUE(kept.second.equal(in_place.second));
        }
      }
    }
  }
}

// As many tokens as one block sorts, a single one, and vocabularies for which it has as many warps as there are and few.
TEST(SortedTokens, AreThoseOfAStableSort) {
  struct Case {
    int64_t rows, vocabulary, warps;
  };
  const Case cases[] = {{1, 1, 1}, {33, 65, 2}, {65'536, 128, 32}, {5'000, 1024, 10}, {20'480, 1024, 10}};
  for (const auto& [rows, vocabulary, warps] : cases) {
    SCOPED_TRACE(testing::Message() << rows << " of " << vocabulary);
    EXPECT_EQ(cuda::sorting_warps(rows, vocabulary), warps);
    const at::Tensor ids = at::randint(vocabulary, {rows}, at::kLong);
    ids.slice(0, rows / 4, rows / 2).fill_(vocabulary - 1);
    const auto [sorted, order] = cuda::sort_tokens(emulation::Launch(), ids, vocabulary);
    const auto [expected, expected_order] = at::sort(ids, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    EXPECT_EQ(sorted.scalar_type(), at::kInt);
    EXPECT_TRUE(sorted.equal(expected.to(at::kInt)));
    EXPECT_TRUE(order.equal(expected_order));
  }
  EXPECT_EQ(cuda::sorting_warps(65'537, 128), 0) << "more than one block sorts soon";
  EXPECT_EQ(cuda::sorting_warps(20'481, 1024), 0);
  EXPECT_EQ(cuda::sorting_warps(1, 1025), 0);
}

TEST(LaunchSizesOfAll, AdamW) {
  for (const at::ScalarType moments : {at::kFloat, at::kByte}) {
    const AdamWRates rates{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    const AdamWScalars scalars{at::full({}, 0.1, at::kFloat), at::ones({}), at::ones({}), at::ones({}), at::zeros({})};
    const auto buffers = [moments](int64_t count) {
      AdamWBuffers of{.values = huge({count}, at::kFloat),
                      .gradients = huge({count}, at::kFloat),
                      .exp_avg = huge({count}, moments),
                      .exp_avg_sq = huge({count}, moments),
                      .rounded = {},
                      .decays = huge({count / layout::kParameterAlignment}, at::kByte)};
      if (moments == at::kByte) {
        of.exp_avg_max = huge({count / layout::kParameterAlignment}, at::kFloat);
        of.exp_avg_sq_max = huge({count / layout::kParameterAlignment}, at::kFloat);
      }
      tail(of.values).fill_(1), tail(of.gradients).fill_(0.5), tail(of.decays).fill_(1);
      return of;
    };
    const AdamWBuffers all = buffers(kParameters), few = buffers(8 * layout::kParameterAlignment);
    cuda::adamw(LaunchOfEnds(), all, rates, scalars);
    cpu::adamw(few, rates, scalars);
    expect_same_tail(all.values, few.values);
  }
}

TEST(LaunchSizesOfAll, Muon) {
  const MuonScalars scalars{at::full({}, 0.1, at::kFloat), at::ones({}), at::ones({}), at::ones({}), at::zeros({})};
  const auto buffers = [](int64_t count) {
    const MuonBuffers of{.gradients = huge({count}, at::kFloat),
                         .momentum = huge({count}, at::kFloat),
                         .direction = huge({count}, at::kFloat)};
    tail(of.gradients).fill_(0.5);
    return of;
  };
  const MuonBuffers all = buffers(kParameters), few = buffers(layout::kParameterAlignment);
  cuda::muon_direction(LaunchOfEnds(), all, 0.95, scalars);
  cpu::muon_direction(few, 0.95, scalars);
  expect_same_tail(all.direction, few.direction);
  const MuonRates rates{.size = 1, .weight_decay = 0.1, .is_cautious = false};
  const MuonWeights weights{.values = huge({kParameters}, at::kFloat), .rounded = {}, .direction = all.direction},
      few_weights{.values = huge({layout::kParameterAlignment}, at::kFloat), .rounded = {}, .direction = few.direction};
  cuda::muon_update(LaunchOfEnds(), weights, rates, scalars);
  cpu::muon_update(few_weights, rates, scalars);
  expect_same_tail(weights.values, few_weights.values);
}

// A block goes through 28 GB in steps of its grid: of the two that run, one has the last values.
TEST(LaunchSizesOfAll, FlatNorm) {
  const at::Tensor values = huge({kParameters}, at::kFloat);
  EXPECT_TRUE(cuda::flat_norm(LaunchOfEnds(), values).defined());
}

}  // namespace
}  // namespace gpt::ops
