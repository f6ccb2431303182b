#include "gpt/device/precision.h"

#include <ATen/Context.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "gpt/core/error.h"
#include "support/restore_context.h"

namespace gpt::device {
namespace {

DeviceInfo cpu(bool bfloat16) {
  DeviceInfo info;
  info.bfloat16 = bfloat16;
  return info;
}

DeviceInfo cuda(int compute_major) {
  DeviceInfo info;
  info.device = at::Device(at::kCUDA, 0);
  info.name = "a card";
  info.compute_major = compute_major;
  info.bfloat16 = info.tf32 = compute_major >= 8;
  info.float16 = compute_major >= 7;
  return info;
}

struct Case {
  bool use_amp;
  Dtype requested;
  DeviceInfo info;
  Dtype dtype;
  bool tf32;
};

TEST(ResolvePrecision, FollowsUseAmpDtypeAndHardware) {
  const Case cases[] = {
      {true, Dtype::automatic, cpu(true), Dtype::bfloat16, false},
      {true, Dtype::automatic, cpu(false), Dtype::float32, false},
      {true, Dtype::automatic, cuda(8), Dtype::bfloat16, true},
      {true, Dtype::automatic, cuda(7), Dtype::float16, false},
      {false, Dtype::automatic, cpu(true), Dtype::float32, false},
      {false, Dtype::automatic, cuda(8), Dtype::tf32, true},
      {false, Dtype::automatic, cuda(7), Dtype::float32, false},
      {true, Dtype::float32, cuda(8), Dtype::float32, false},
      {false, Dtype::float32, cuda(8), Dtype::float32, false},
      {true, Dtype::tf32, cuda(8), Dtype::tf32, true},
      {true, Dtype::bfloat16, cpu(false), Dtype::bfloat16, false},
      {true, Dtype::float16, cuda(8), Dtype::float16, true},
  };
  for (const Case& c : cases) {
    const Precision precision = resolve_precision({.use_amp = c.use_amp, .dtype = c.requested}, c.info);
    const bool sixteen_bit = c.dtype == Dtype::bfloat16 || c.dtype == Dtype::float16;
    SCOPED_TRACE(testing::Message() << "case " << &c - cases << ": " << precision.reason);
    EXPECT_EQ(precision.dtype, c.dtype);
    EXPECT_EQ(precision.tf32, c.tf32);
    EXPECT_EQ(precision.autocast_type() != at::kFloat || precision.end_to_end, sixteen_bit);
    EXPECT_EQ(precision.end_to_end, c.dtype == Dtype::bfloat16 && c.info.bfloat16);
    EXPECT_EQ(precision.grad_scaler, c.dtype == Dtype::float16);
    EXPECT_EQ(precision.compute_type(), c.dtype == Dtype::bfloat16  ? at::kBFloat16
                                        : c.dtype == Dtype::float16 ? at::kHalf
                                                                    : at::kFloat);
    EXPECT_NE(precision.reason, "");
  }
}

TEST(ResolvePrecision, ACpuWhoseBfloat16IsSlowComputesInFloat32) {
  DeviceInfo info = cpu(false);
  info.slow_bfloat16 = true;
  const Precision automatic = resolve_precision({}, info);
  EXPECT_EQ(automatic.dtype, Dtype::float32);
  EXPECT_EQ(automatic.reason, "float32: the CPU's bfloat16 instructions are no faster than float32's");
  const Precision asked = resolve_precision({.dtype = Dtype::bfloat16}, info);
  EXPECT_EQ(asked.dtype, Dtype::bfloat16);
  EXPECT_TRUE(asked.end_to_end);  // less slow than with conversions
  // A run that began in bfloat16 has amp_mode, and goes on as it began.
  for (const AmpMode began : {AmpMode::autocast, AmpMode::end_to_end}) {
    const Precision resumed = resolve_precision({.amp_mode = began}, info);
    EXPECT_EQ(resumed.dtype, Dtype::bfloat16);
    EXPECT_EQ(resumed.end_to_end, began == AmpMode::end_to_end);
    EXPECT_EQ(resolve_precision({.amp_mode = began}, cpu(false)).dtype, Dtype::float32) << "where it would be emulated";
  }
  EXPECT_NE(asked.reason.find(bfloat16_obstacle(info)), std::string::npos) << asked.reason;
}

TEST(ResolvePrecision, AmpModeSaysHowSixteenBitsAreUsed) {
  const PrecisionConfig autocast{.amp_mode = AmpMode::autocast}, end_to_end{.amp_mode = AmpMode::end_to_end};
  for (const DeviceInfo& info : {cpu(true), cuda(8)}) {
    const Precision first = resolve_precision(autocast, info), second = resolve_precision(end_to_end, info);
    EXPECT_EQ(first.autocast_type(), at::kBFloat16);
    EXPECT_EQ(first.weight_type(), at::kFloat);
    EXPECT_NE(first.reason.find("autocast"), std::string::npos) << first.reason;
    EXPECT_EQ(second.autocast_type(), at::kFloat);
    EXPECT_EQ(second.weight_type(), at::kBFloat16);
    EXPECT_NE(second.reason.find("end to end"), std::string::npos) << second.reason;
  }
  const Precision narrow = resolve_precision(end_to_end, cpu(false));
  EXPECT_EQ(narrow.weight_type(), at::kFloat) << "there are no 16 bits to use";
  EXPECT_EQ(resolve_precision({}, cuda(7)).autocast_type(), at::kHalf);
  // float16's range is too small: refused where it was named, otherwise autocast, as for a run that moves to an older GPU.
  EXPECT_EQ(resolve_precision(end_to_end, cuda(7)).autocast_type(), at::kHalf);
  EXPECT_THROW(resolve_precision({.dtype = Dtype::float16, .amp_mode = AmpMode::end_to_end}, cuda(8)), Error);
}

TEST(Precision, GradientsHaveSixteenBitsWhereNothingIsAddedUp) {
  TrainingConfig training;
  EXPECT_EQ(gradient_type(training, /*end_to_end=*/true), at::kBFloat16);
  EXPECT_EQ(gradient_type(training, /*end_to_end=*/false), at::kFloat);
  training.gradient_accumulation_steps = 2;
  EXPECT_EQ(gradient_type(training, /*end_to_end=*/true), at::kFloat);
  training.precision.gradient_dtype = GradientDtype::bfloat16;
  EXPECT_EQ(gradient_type(training, /*end_to_end=*/true), at::kBFloat16);
  EXPECT_EQ(gradient_type(training, /*end_to_end=*/false), at::kFloat) << "another device goes on without them";
  training.precision.gradient_dtype = GradientDtype::float32;
  training.gradient_accumulation_steps = 1;
  EXPECT_EQ(gradient_type(training, /*end_to_end=*/true), at::kFloat);
}

TEST(Precision, ARunKeepsWhatAutoChose) {
  TrainingConfig training;
  keep_resolved(training, resolve_precision(training.precision, cuda(8)));
  EXPECT_EQ(training.precision.dtype, Dtype::bfloat16);
  EXPECT_EQ(training.precision.amp_mode, AmpMode::end_to_end);
  EXPECT_EQ(training.precision.gradient_dtype, GradientDtype::bfloat16);
  TrainingConfig elsewhere;
  keep_resolved(elsewhere, resolve_precision(elsewhere.precision, cpu(false)));
  EXPECT_EQ(elsewhere.precision.dtype, Dtype::float32);
  EXPECT_EQ(elsewhere.precision.amp_mode, AmpMode::automatic);
  EXPECT_EQ(elsewhere.precision.gradient_dtype, GradientDtype::automatic);
}

TEST(Precision, ADtypeThatIsMissingHereIsChosenAgainAndTheChangeIsNamed) {
  const PrecisionConfig asked;  // auto
  DeviceInfo slow = cpu(false);
  slow.slow_bfloat16 = true;
  struct Case {
    Dtype kept;
    DeviceInfo here;
    Dtype goes_on;
  };
  const Case cases[] = {{Dtype::float32, cuda(8), Dtype::float32},   {Dtype::bfloat16, cpu(true), Dtype::bfloat16},
                        {Dtype::bfloat16, slow, Dtype::bfloat16},    {Dtype::bfloat16, cpu(false), Dtype::float32},
                        {Dtype::bfloat16, cuda(7), Dtype::float16},  {Dtype::tf32, cpu(true), Dtype::bfloat16},
                        {Dtype::float16, cpu(false), Dtype::float32}};
  for (const Case& c : cases) {
    PrecisionConfig kept{.dtype = c.kept};
    const std::string change = choose_again_if_missing(kept, asked, c.here);
    EXPECT_EQ(resolve_precision(kept, c.here).dtype, c.goes_on);
    EXPECT_EQ(change.empty(), c.goes_on == c.kept) << change;
  }
  PrecisionConfig kept{.dtype = Dtype::bfloat16};
  EXPECT_EQ(choose_again_if_missing(kept, asked, cpu(false)),
            "The run computed in bfloat16, which the CPU does not have: it goes on in float32");
  kept.dtype = Dtype::tf32;
  EXPECT_EQ(choose_again_if_missing(kept, {.dtype = Dtype::tf32}, cpu(false)), "") << "asked for: it is refused";
  EXPECT_EQ(kept.dtype, Dtype::tf32);
}

TEST(Precision, WeightsWithoutAMasterNeedBFloat16EndToEnd) {
  const PrecisionConfig alone{.amp_mode = AmpMode::end_to_end, .master_weights = false};
  EXPECT_TRUE(resolve_precision(alone, cuda(8)).end_to_end);
  EXPECT_EQ(kept_weight_type(alone), at::kBFloat16);
  EXPECT_THROW(resolve_precision(alone, cpu(false)), Error) << "float32 there";
  EXPECT_THROW(resolve_precision({.amp_mode = AmpMode::autocast, .master_weights = false}, cuda(8)), Error);
}

TEST(ResolvePrecision, SaysWhenBfloat16IsEmulated) {
  const std::string reason = resolve_precision({.dtype = Dtype::bfloat16}, cpu(false)).reason;
  EXPECT_NE(reason.find("emulated"), std::string::npos) << reason;
}

TEST(ResolvePrecision, RefusesWhatTheDeviceLacksWithAWayOut) {
  struct Refusal {
    bool use_amp;
    Dtype dtype;
    DeviceInfo info;
    const char* way_out;
  };
  const Refusal refusals[] = {
      {true, Dtype::float16, cpu(true), "dtype to bfloat16 or"},
      {true, Dtype::tf32, cpu(true), "dtype float32"},
      {true, Dtype::tf32, cuda(7), "dtype float32"},
      {true, Dtype::bfloat16, cuda(7), "dtype float16 or"},
      {false, Dtype::bfloat16, cuda(8), "use_amp to true"},
      {false, Dtype::float16, cuda(8), "use_amp to true"},
      {false, Dtype::bfloat16, cpu(true), "dtype to float32"},
  };
  for (const Refusal& r : refusals) {
    try {
      resolve_precision({.use_amp = r.use_amp, .dtype = r.dtype}, r.info);
      FAIL() << "case " << &r - refusals;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::config);
      EXPECT_NE(std::string(e.what()).find(r.way_out), std::string::npos) << e.what();
    }
  }
}

TEST(ApplyPrecision, SetsTf32AndDeterminism) {
  RestoreContext restore;
  at::Context& context = at::globalContext();
  const auto matmul = [&] { return context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL); };
  Precision precision;
  precision.tf32 = true;
  context.setAllowBF16ReductionCuBLAS(true);
  context.setAllowFP16ReductionCuBLAS(true);
  apply_precision(precision, false);
  // The parts of a split sum stay float32; splitting it is allowed.
  EXPECT_EQ(context.allowBF16ReductionCuBLAS(), at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
  EXPECT_EQ(context.allowFP16ReductionCuBLAS(), at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
  EXPECT_EQ(matmul(), at::Float32Precision::TF32);
  EXPECT_TRUE(context.benchmarkCuDNN());
  EXPECT_FALSE(context.deterministicAlgorithms());
  precision.tf32 = false;
  apply_precision(precision, true);
  EXPECT_EQ(matmul(), at::Float32Precision::IEEE);
  EXPECT_FALSE(context.benchmarkCuDNN());
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_TRUE(context.deterministicCuDNN());
}

TEST(Autocast, ActsWithinItsScopeAndIsRestored) {
  const at::Tensor a = at::ones({4, 4});
  {
    Autocast autocast(at::kCPU, at::kBFloat16);
    EXPECT_EQ(at::mm(a, a).scalar_type(), at::kBFloat16);
    {
      Autocast inner(at::kCPU, at::kHalf);
      EXPECT_EQ(at::mm(a, a).scalar_type(), at::kHalf);
    }
    EXPECT_EQ(at::mm(a, a).scalar_type(), at::kBFloat16);
    Autocast nothing(at::kCPU, at::kFloat);
    EXPECT_EQ(at::mm(a, a).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::mm(a, a).scalar_type(), at::kFloat);
}

TEST(Autocast, IsRestoredByAnException) {
  const at::Tensor a = at::ones({4, 4});
  try {
    Autocast autocast(at::kCPU, at::kBFloat16);
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {}
  EXPECT_EQ(at::mm(a, a).scalar_type(), at::kFloat);
}

// A stale copy of a weight after the optimizer changed it in place would train on old numbers without a word.
TEST(Autocast, WeightCopiesAreForgottenAtTheEnd) {
  at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const at::Tensor x = at::ones({2, 2});
  {
    Autocast autocast(at::kCPU, at::kBFloat16);
    at::mm(x, weight);
  }
  weight.data().fill_(3);
  Autocast autocast(at::kCPU, at::kBFloat16);
  EXPECT_EQ(at::mm(x, weight)[0][0].item<float>(), 6);
}

}  // namespace
}  // namespace gpt::device
