// The devices a parametrised test runs on. Where there is no GPU its cases skip, saying why; GPT_REQUIRE_CUDA=1 turns
// that skip into a failure, so that a GPU machine cannot look green without having used its GPU.
#pragma once

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace gpt {

struct DeviceCase {
  const char* name;
  at::Device device;
  bool is_emulated = false;  // the CUDA kernels, on tensors of the CPU: support/emulated_kernels.h
};

inline const DeviceCase kDevices[] = {{"cpu", at::kCPU}, {"cuda", at::Device(at::kCUDA, 0)}};
// For operators with CUDA kernels of their own.
inline const DeviceCase kDevicesAndEmulation[] = {kDevices[0], kDevices[1], {"emulated", at::kCPU, true}};

// Whether the operators' kernels there take float16.
inline bool takes_float16(const DeviceCase& device_case) {
  return !device_case.device.is_cpu() || device_case.is_emulated;
}

// The types that they take.
inline std::vector<at::ScalarType> kernel_types(const DeviceCase& device_case) {
  std::vector<at::ScalarType> types{at::kFloat, at::kBFloat16};
  if (takes_float16(device_case)) types.push_back(at::kHalf);
  return types;
}

inline void PrintTo(const DeviceCase& device_case, std::ostream* out) { *out << device_case.name; }

// The name of a case whose parameters begin with its device: "3_cuda". A filter finds the tests of a device by it.
inline constexpr auto index_and_device = [](const auto& info) {
  return std::to_string(info.index) + "_" + std::get<0>(info.param).name;
};

// Why `device` cannot be used here, or null.
inline const char* missing(at::Device device) {
  if (!device.is_cuda()) return nullptr;
#ifdef GPT_CUDA
  if (!at::hasCUDA()) return "no CUDA device on this machine";
  at::globalContext().lazyInitDevice(device.type());  // as select_device() does in a program
  return nullptr;
#else
  return "this build has no CUDA code";
#endif
}

inline bool cuda_is_required() {
  const char* value = std::getenv("GPT_REQUIRE_CUDA");
  return value && std::string_view(value) == "1";
}

}  // namespace gpt

// First in the body of a test, or in SetUp(), with a semicolon.
#define GPT_SKIP_WITHOUT(device_case)                                                       \
  do {                                                                                      \
    if (const char* reason = ::gpt::missing((device_case).device)) {                        \
      if (::gpt::cuda_is_required()) FAIL() << reason << ", and GPT_REQUIRE_CUDA=1 is set"; \
      GTEST_SKIP() << reason;                                                               \
    }                                                                                       \
  } while (false)

namespace gpt {

// A test that runs on each of kDevices: derive from it, and name it in INSTANTIATE_ON_DEVICES().
class DeviceTest : public ::testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override { GPT_SKIP_WITHOUT(GetParam()); }
  at::Device device() const { return GetParam().device; }
  at::Tensor full(at::IntArrayRef shape, double value, at::ScalarType dtype = at::kFloat) const {
    return at::full(shape, value, at::TensorOptions(device()).dtype(dtype));
  }
};

}  // namespace gpt

#define INSTANTIATE_ON_DEVICES(test) \
  INSTANTIATE_TEST_SUITE_P(Devices, test, ::testing::ValuesIn(::gpt::kDevices), ::testing::PrintToStringParamName())
