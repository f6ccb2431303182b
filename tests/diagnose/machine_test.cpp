#include "gpt/diagnose/machine.h"

#include <gtest/gtest.h>

namespace gpt::diagnose {
namespace {

using Status = plan::Check::Status;

const CudaState kWorking{true, true, "580.65.06", "NVIDIA driver 580.65.06", ""};

TEST(CheckCuda, PassesWithAGpuThatWorks) {
  const plan::Check check = check_cuda(kWorking);
  EXPECT_EQ(check.status, Status::pass);
  EXPECT_EQ(check.detail, kWorking.versions);
}

TEST(CheckCuda, PassesWithoutAGpu) {
  EXPECT_EQ(check_cuda({true, false, "", "", "no CUDA device found"}).status, Status::pass);
  EXPECT_EQ(check_cuda({false, false, "", "", "built without CUDA"}).status, Status::pass);
}

TEST(CheckCuda, AGpuThatThisBuildCannotUseIsAWarning) {
  const plan::Check check = check_cuda({false, true, "580.65.06", "", "this build has no CUDA code"});
  EXPECT_EQ(check.status, Status::warn);
  EXPECT_NE(check.fix.find("--cuda"), std::string::npos);
}

TEST(CheckCuda, ADriverTooOldFailsAndTheNeededOneIsNamed) {
  CudaState state = kWorking;
  state.driver = "535.104.05";
  state.fault = "driver too old";
  const plan::Check check = check_cuda(state);
  EXPECT_EQ(check.status, Status::fail);
  EXPECT_NE(check.fix.find("535.104.05 to 580 or newer"), std::string::npos) << check.fix;
}

TEST(CheckCuda, AMissingDriverFailsAndTheNeededOneIsNamed) {
  const plan::Check check = check_cuda({true, true, "", "", "no NVIDIA driver found"});
  EXPECT_EQ(check.status, Status::fail);
  EXPECT_NE(check.fix.find("580"), std::string::npos) << check.fix;
}

TEST(CheckCuda, AGpuThatIsHiddenFails) {
  CudaState state = kWorking;
  state.fault = "no CUDA device found";
  const plan::Check check = check_cuda(state);
  EXPECT_EQ(check.status, Status::fail);
  EXPECT_NE(check.fix.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << check.fix;
}

TEST(CheckInstructions, WithoutAvx2IsSlow) {
  EXPECT_EQ(check_instructions(false, false, device::CpuBfloat16::absent, false).status, Status::warn);
  const plan::Check check = check_instructions(true, true, device::CpuBfloat16::fast, false);
  EXPECT_EQ(check.status, Status::pass);
  EXPECT_EQ(check.detail.find("avx2 avx512 bfloat16;"), 0) << check.detail;
}

TEST(CheckFreeMemory, LittleOfItWarns) {
  EXPECT_EQ(check_free_memory("memory", 10, 16).status, Status::pass);
  EXPECT_EQ(check_free_memory("memory", 3, 16).status, Status::warn);
}

// On any machine at all: nothing is thrown, and what needs doing says what.
TEST(CheckMachine, EveryFindingThatIsNoPassHasAFix) {
  const plan::Checks checks = check_machine();
  EXPECT_GE(checks.size(), 6);
  for (const auto& check : checks) {
    EXPECT_NE(check.detail, "") << check.name;
    EXPECT_EQ(check.fix.empty(), check.status == Status::pass) << check.name << ": " << check.detail;
  }
}

}  // namespace
}  // namespace gpt::diagnose
