// The classifier with a teacher, of both sets of operators, against autograd's derivative of the formula in float64.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpt/device/precision.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/products/product.h"
#include "support/allocations.h"
#include "support/device_cases.h"
#include "support/emulated_kernels.h"
#include "support/parameter_of.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct DistillationCase {
  const char* name;
  int64_t rows, C, V, Vp;
  int64_t teacher_columns, teacher_rows;  // of its head
  double weight, temperature, smoothing;
  int64_t chunk_rows;
  int64_t masked = 0;  // of every three rows
};

void PrintTo(const DistillationCase& c, std::ostream* out) { *out << c.name; }

// Vocabularies below, of and beside whole vectors, padded like the model's or otherwise; shares at both ends and between.
const DistillationCase kDistillationCases[] = {{"one_of_each", 1, 1, 1, 1, 1, 1, 0.5, 1, 0, 0},
                                               {"tiny", 7, 5, 3, 8, 9, 8, 0.5, 1, 0, 0},
                                               {"characters", 48, 33, 65, 128, 40, 128, 0.5, 2, 0, 0},
                                               {"smoothed_chunks_with_a_rest", 50, 33, 65, 128, 16, 65, 0.3, 4, 0.1,
                                                16},
                                               {"the_teacher_alone", 20, 24, 64, 64, 48, 64, 1, 1, 0, 20},
                                               {"the_text_alone", 20, 24, 64, 64, 48, 64, 0, 1, 0.1, 0},
                                               {"odd_vocabulary", 23, 16, 1003, 1024, 31, 1003, 0.7, 1.5, 0.2, 5},
                                               {"below_one_degree", 19, 16, 77, 83, 16, 91, 0.5, 0.5, 0.05, 6},
                                               {"masked_rows", 48, 33, 65, 128, 40, 128, 0.5, 2, 0.1, 10, 1},
                                               {"nothing_but_masked_rows", 7, 5, 3, 8, 9, 8, 0.5, 1, 0, 0, 3}};

// Inputs whose logits are of order one, exact in `type`.
struct Lesson {
  at::Tensor x, weight, targets, rows, head;

  Lesson(const DistillationCase& c, at::ScalarType type, at::Generator& generator) {
    const auto of = [&](int64_t rows, int64_t columns, double scale) {
      return (at::randn({rows, columns}, generator) * scale).to(type).to(at::kFloat);
    };
    x = of(c.rows, c.C, 1);
    weight = of(c.Vp, c.C, 1 / std::sqrt(static_cast<double>(c.C)));
    targets = at::randint(0, c.V, {c.rows}, generator, at::kLong);
    for (int64_t i = 0; i < c.rows; ++i)
      if (i % 3 < c.masked) targets[i] = kMaskedTarget;
    rows = of(c.rows, c.teacher_columns, 1);
    head = of(c.teacher_rows, c.teacher_columns, 1.5 / std::sqrt(static_cast<double>(c.teacher_columns)));
  }
};

// Loss and gradients in float64, and how far a result may be from them.
struct LessonReference {
  at::Tensor loss, x_gradient, head_gradient;  // times upstream
  double loss_bound;
  at::Tensor x_bound, head_bound;

  LessonReference(const DistillationCase& c, const Lesson& in, double upstream, at::ScalarType type) {
    const double t = c.temperature, w = c.weight;
    const at::Tensor x = in.x.to(at::kDouble).requires_grad_(), weight = in.weight.to(at::kDouble).requires_grad_();
    const at::Tensor z = x.matmul(weight.t()).narrow(1, 0, c.V),
                     y = in.rows.to(at::kDouble).matmul(in.head.to(at::kDouble).t()).narrow(1, 0, c.V);
    const at::Tensor log_p = at::log_softmax(z, 1), soft_log = at::log_softmax(z / t, 1),
                     log_q = at::log_softmax(y / t, 1);
    at::Tensor wanted = at::full({c.rows, c.V}, c.smoothing / static_cast<double>(c.V), at::kDouble);
    wanted.scatter_add_(1, in.targets.clamp_min(0).unsqueeze(1), at::full({c.rows, 1}, 1 - c.smoothing, at::kDouble));
    const at::Tensor text = -(wanted * log_p).sum(1), divergence = (log_q.exp() * (log_q - soft_log)).sum(1);
    const at::Tensor counted = (in.targets != kMaskedTarget).to(at::kDouble);
    loss = (((1 - w) * text + w * t * t * divergence) * counted).mean();
    loss.backward(at::full({}, upstream, at::kDouble));
    x_gradient = x.grad(), head_gradient = weight.grad();

    const at::NoGradGuard no_grad;
    // A logit is a sum of products, and in 16 bits is rounded at most twice. The exponent of a power is rounded as well, which moves it by
    // that part of itself.
    const double of_student = z.abs().max().item<double>(), of_teacher = y.abs().max().item<double>();
    const double last = type == at::kFloat ? 0 : 2 * test::unit_roundoff(type);
    const auto of_logits = [&](int64_t columns, double largest) {
      return test::tolerance(at::kFloat, columns, largest) + last * largest;
    };
    const double cold = 1 / t, range = 2 * (of_student + of_teacher);
    const double moved =
        of_logits(c.C, of_student) + of_logits(c.teacher_columns, of_teacher) + test::tolerance(at::kFloat, 4, range);
    const double in_sums = test::tolerance(at::kFloat, c.V + 16);
    const double of_power = 2 * moved * std::max(1.0, cold) + 2 * in_sums;  // relative, of every probability
    loss_bound =
        (1 - w) * (2 * moved + in_sums * (1 + range + std::log(c.V))) +
        w * t * t * (2 * moved * cold + of_power * range * cold + in_sums * (1 + range * cold + 2 * std::log(c.V)));
    // A gradient of logits is the difference of parts, whose sum is `parts`, and is rounded to its type; so is a product.
    const at::Tensor parts = counted.unsqueeze(1) *
                             ((1 - w) * (log_p.exp() + wanted) + w * t * (soft_log.exp() + log_q.exp())) * upstream /
                             static_cast<double>(c.rows);
    const double each = of_power + 2 * last;
    x_bound = parts.matmul(weight.narrow(0, 0, c.V).abs()) * (each + test::tolerance(at::kFloat, c.V));
    head_bound = at::zeros({c.Vp, c.C}, at::kDouble);
    head_bound.narrow(0, 0, c.V).copy_(parts.t().matmul(x.abs()) * (each + test::tolerance(at::kFloat, c.rows)));
    loss = loss.detach();
  }
};

void expect_near(const at::Tensor& result, const at::Tensor& expected, const at::Tensor& bound) {
  const at::Tensor error = (test::exact(result).reshape(expected.sizes()) - expected).abs();
  EXPECT_TRUE((error <= bound).all().item<bool>())
      << (error / bound).nan_to_num(0).max().item<double>() << " times the bound";
}

constexpr double kUpstream = 0.375;

class ClassifierDistillation : public testing::TestWithParam<std::tuple<DeviceCase, at::ScalarType, DistillationCase>> {
 protected:
  void SetUp() override {
    const DeviceCase& where = std::get<0>(GetParam());
    GPT_SKIP_WITHOUT(where);
    if (type() == at::kHalf && !takes_float16(where)) GTEST_SKIP() << "the kernels of a CPU take no float16";
    if (where.is_emulated) emulated_.emplace();
  }
  at::Device device() const { return std::get<0>(GetParam()).device; }
  at::ScalarType type() const { return std::get<1>(GetParam()); }
  const DistillationCase& what() const { return std::get<2>(GetParam()); }
  at::Tensor upstream() const { return at::full({}, kUpstream, at::TensorOptions(device()).dtype(at::kFloat)); }

  // `of`: the type of what the operator is given.
  ClassifierOptions options(const Lesson& in, at::ScalarType of = at::kFloat) const {
    return {what().V,
            what().smoothing,
            what().chunk_rows,
            {in.rows.to(device(), of), in.head.to(device(), of), what().weight, what().temperature}};
  }

  void expect_reference(const Operators& operators, bool is_end_to_end) {
    const Lesson in(what(), type(), generator_);
    const LessonReference reference(what(), in, kUpstream, type());
    const at::ScalarType of = is_end_to_end ? type() : at::kFloat;
    const at::Tensor x = in.x.to(device(), of, false, /*copy=*/true).requires_grad_();
    const parameters::Parameter head = test::parameter_of(in.weight.to(device(), false, /*copy=*/true),
                                                          {.compute = of, .has_master = true, .gradient = at::kFloat});
    at::Tensor loss;
    {
      const device::Autocast autocast(device(), is_end_to_end ? at::kFloat : type());
      loss = operators.classifier_loss(x, head, in.targets.to(device()), options(in, of), upstream());
    }
    loss.backward(upstream());
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_NEAR(loss.item<double>(), reference.loss.item<double>(), reference.loss_bound);
    expect_near(x.grad(), reference.x_gradient, reference.x_bound);
    expect_near(head.gradient(), reference.head_gradient, reference.head_bound);
  }

  at::Generator generator_ = at::detail::createCPUGenerator(1);
  std::optional<test::EmulatedKernels> emulated_;
};

TEST_P(ClassifierDistillation, EqualsFloat64) { expect_reference(*fused_operators(), /*is_end_to_end=*/false); }

TEST_P(ClassifierDistillation, EqualsFloat64EndToEnd) {
  if (type() == at::kFloat) GTEST_SKIP() << "about 16 bits";
  expect_reference(*fused_operators(), /*is_end_to_end=*/true);
}

TEST_P(ClassifierDistillation, OfLibTorchsOperatorsEqualsFloat64) {
  if (std::get<0>(GetParam()).is_emulated) GTEST_SKIP() << "these have no kernels of ours";
  expect_reference(*aten_operators(), /*is_end_to_end=*/false);
}

TEST_P(ClassifierDistillation, WithoutGradientsIsTheSameLoss) {
  const Lesson in(what(), type(), generator_);
  const LessonReference reference(what(), in, kUpstream, type());
  const parameters::Parameter head(in.weight.to(device(), false, /*copy=*/true));
  const at::NoGradGuard no_grad;
  const device::Autocast autocast(device(), type());
  const at::Tensor loss = classifier_loss(in.x.to(device()), head, in.targets.to(device()), options(in));
  EXPECT_NEAR(loss.item<double>(), reference.loss.item<double>(), reference.loss_bound);
  EXPECT_FALSE(head.has_gradient());
}

INSTANTIATE_TEST_SUITE_P(Devices, ClassifierDistillation,
                         testing::Combine(testing::ValuesIn(kDevicesAndEmulation),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::ValuesIn(kDistillationCases)),
                         [](const auto& test) {
                           return std::string(std::get<2>(test.param).name) + "_" +
                                  c10::toString(std::get<1>(test.param)) + "_" + std::get<0>(test.param).name;
                         });

class ClassifierTeacher : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (GetParam().is_emulated) emulated_.emplace();
  }
  at::Tensor tokens(const std::vector<int64_t>& of) const { return at::tensor(of, at::kLong).to(device()); }
  std::optional<test::EmulatedKernels> emulated_;
};

// One that says the same as the model, which then has nothing to learn from it.
TEST_P(ClassifierTeacher, ThatAgreesGivesNoLossAndNoGradient) {
  const at::Tensor x = at::randn({6, 12}).to(device()).requires_grad_(), weight = at::randn({77, 12}).to(device());
  const parameters::Parameter head(weight.clone());
  const at::Tensor loss = classifier_loss(x, head, tokens({1, 2, 3, 4, 5, 6}), {77, 0, 0, {x.detach(), weight, 1, 2}});
  loss.backward();
  // Both computed the same logits, whose sums cancel but for the roundings of sums near 1.
  const double bound = test::tolerance(at::kFloat, 77 + 16, 4.0);
  EXPECT_NEAR(loss.item<double>(), 0, bound);
  EXPECT_LE(x.grad().abs().max().item<double>(), bound);
}

// Logits of 10,000 and -10,000, about which both are sure: one that agrees, and one that does not.
TEST_P(ClassifierTeacher, ExtremeLogitsDoNotOverflow) {
  const at::Tensor x = at::tensor({1.0, 0.0, 1.0, 0.0}).to(device(), at::kFloat).view({2, 2}).requires_grad_(),
                   rows = at::tensor({1.0, 0.0, 0.0, 1.0}).to(device(), at::kFloat).view({2, 2}),
                   weight = at::tensor({1e4, -1e4, -1e4, 1e4, 0.0, 0.0}).to(device(), at::kFloat).view({3, 2});
  const parameters::Parameter head(weight.clone());
  const at::Tensor loss = classifier_loss(x, head, tokens({0, 0}), {3, 0, 0, {rows, weight, 0.5, 1}});
  EXPECT_NEAR(loss.item<double>(), (0 + 0.5 * 2e4) / 2, test::tolerance(at::kFloat, 8, 5e3));
  loss.backward();
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(head.gradient().isfinite().all().item<bool>());
}

TEST_P(ClassifierTeacher, ValuesThatAreNotFiniteStayVisible) {
  const at::Tensor x = full({2, 20}, 1).requires_grad_(), rows = full({2, 20}, 1), weight = full({40, 20}, 0.1);
  rows[0].fill_(std::nan(""));
  const parameters::Parameter head(weight.clone());
  const at::Tensor loss = classifier_loss(x, head, tokens({1, 1}), {33, 0, 0, {rows, weight, 0.5, 1}});
  EXPECT_TRUE(std::isnan(loss.item<double>()));
  loss.backward();
  EXPECT_TRUE(x.grad()[0].isnan().all().item<bool>());
  EXPECT_TRUE(x.grad()[1].isfinite().all().item<bool>());
}

// What lies in the padding of either head changes nothing, however large it is.
TEST_P(ClassifierTeacher, ThePaddingTakesNoPart) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const at::Tensor x = at::randn({5, 8}, generator), weight = at::randn({24, 8}, generator),
                   other = at::randn({32, 8}, generator);
  const auto run = [&](double padding) {
    const at::Tensor filled = weight.clone(), teacher = other.clone();
    filled.narrow(0, 19, 5).fill_(padding), teacher.narrow(0, 19, 13).fill_(-padding);
    const parameters::Parameter head(filled.to(device()));
    const at::Tensor loss = classifier_loss(x.to(device()), head, tokens({1, 2, 3, 4, 18}),
                                            {19, 0.1, 0, {x.to(device()), teacher.to(device()), 0.5, 2}});
    EXPECT_EQ(head.gradient().narrow(0, 19, 5).abs().max().item<double>(), 0);
    return std::pair(loss.detach(), head.gradient());
  };
  const auto none = run(0), large = run(1e4);
  EXPECT_TRUE(none.first.equal(large.first));
  EXPECT_TRUE(none.second.equal(large.second));
}

INSTANTIATE_TEST_SUITE_P(Devices, ClassifierTeacher, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

TEST(ClassifierTeacherOnCpu, NoMoreThanOneChunkOfItsLogitsExists) {
  constexpr int64_t kRows = 10000, kVocabulary = 2048, kChunk = 100, kBytes = 4;
  const at::Tensor x = at::randn({kRows, 8}).requires_grad_(), targets = at::randint(0, 500, {kRows}, at::kLong),
                   rows = at::randn({kRows, 8}), teacher = at::randn({kVocabulary, 8});
  const parameters::Parameter head(at::randn({kVocabulary, 8}));
  const test::Allocations allocations;
  classifier_loss(x, head, targets, {500, 0.1, kChunk, {rows, teacher, 0.5, 1}}, at::ones({})).backward();
  const int64_t gradients = (kRows + kVocabulary) * 8 * kBytes, losses = kRows * kBytes;
  EXPECT_LE(allocations.peak(), 2 * kChunk * kVocabulary * kBytes + gradients + losses +
                                    static_cast<int64_t>(cpu::product_workspace(at::kFloat)) + 4096);
}

TEST(ClassifierTeacherArguments, ThatDoNotFitAreRefused) {
  const at::Tensor x = at::randn({4, 8}).requires_grad_(), rows = at::randn({4, 6}), weight = at::randn({10, 6});
  const parameters::Parameter head(at::randn({16, 8}));
  const at::Tensor targets = at::zeros({4}, at::kLong);
  const auto refused = [&](const Distillation& teacher) {
    EXPECT_THROW(classifier_loss(x, head, targets, {10, 0, 0, teacher}), c10::Error);
    EXPECT_FALSE(head.has_gradient());
  };
  refused({at::randn({3, 6}), weight, 0.5, 1});
  refused({rows, at::randn({10, 7}), 0.5, 1});
  refused({rows, at::randn({9, 6}), 0.5, 1});
  refused({rows, weight, 1.5, 1});
  refused({rows, weight, 0.5, 0});
  refused({rows.to(at::kBFloat16), weight, 0.5, 1});
  refused({rows, at::randn({10, 6}).requires_grad_(), 0.5, 1});
  EXPECT_NO_THROW(classifier_loss(x, head, targets, {10, 0, 0, {rows, weight, 0.5, 1}}));
}

}  // namespace
}  // namespace gpt::ops
